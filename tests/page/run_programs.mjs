// Runs programs on inputs and prints what comes out: node run_programs.mjs cases.json; used by tests in Python.
import fs from "node:fs";
import { array, draws, program } from "../../rlviz/page/run.js";

const { programs, cases } = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const numbers = (value) => (typeof value === "string" ? Number(value) : value);
const compiled = Object.fromEntries(Object.entries(programs).map(([key, value]) => [key, program(value)]));
const drawn = {}; // by recipe: many cases have the same chance
const results = cases.map(({ key, inputs, slices }) => {
  const values = {};
  for (const [name, value] of Object.entries(inputs)) {
    if (value?.is === "Draws") values[name] = drawn[JSON.stringify(value)] ??= draws(value, {});
    else values[name] = value?.shape ? array(value.shape, Float64Array.from(value.data, numbers)) : value;
  }
  const began = performance.now();
  let outputs;
  for (let i = 0; i < (slices ?? 1); i++) outputs = compiled[key](values, undefined, slices === null ? Infinity : 0);
  const ms = performance.now() - began;
  const plain = Object.fromEntries(
    Object.entries(outputs).map(([name, value]) => [name, { shape: value.shape, data: Array.from(value.data, String) }]),
  );
  return { ms, outputs: plain };
});
process.stdout.write(JSON.stringify(results));
