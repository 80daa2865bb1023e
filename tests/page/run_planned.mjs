// Runs programs planned for their sizes and prints what comes out: node run_planned.mjs cases.json; used by tests in Python.
import fs from "node:fs";
import { compile, exp, expm1, log, machine } from "../../rlviz/page/planned.js";

const { kernels, cases, numbers } = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const memory = machine(Buffer.from(kernels, "base64"));
const results = cases.map(({ program, phases, runs, reruns }) => {
  const shapes = Object.fromEntries(Object.entries(runs[0].inputs).map(([name, { shape }]) => [name, shape]));
  const planned = compile(memory, program, shapes, phases, reruns);
  return runs.map(({ inputs, run }) => {
    for (const [name, { data }] of Object.entries(inputs)) planned.in(name).set(data.map(Number));
    run.forEach((phase) => planned.run(phase));
    return Object.fromEntries(Object.keys(program.outputs).map((name) => [name, Array.from(planned.out(name), String)]));
  });
});
const functions = { exp, expm1, log };
const values = Object.entries(numbers ?? {}).map(([name, xs]) => [name, xs.map((x) => String(functions[name](Number(x))))]);
process.stdout.write(JSON.stringify({ results, numbers: Object.fromEntries(values) }));
