// Runs what test_operations.py asks for: node operations.mjs RUN.mjs ASKED.json > ANSWERS.json
import { readFileSync } from "node:fs";

const [, , module, questions] = process.argv;
const { OPS, program, draws } = await import(module);
const { cases, series, recipes } = JSON.parse(readFileSync(questions, "utf8"));

const json = (x) => (Object.is(x, -0) ? "-0" : Number.isFinite(x) ? x : String(x));
const plain = ({ shape = [], data = [] }) => ({ shape, data: Array.from(data, json) });
const arrays = ({ shape, data, still }) => ({ shape, data: Float64Array.from(data, Number), still });
const mapped = (object, f) => Object.fromEntries(Object.entries(object).map(([name, value]) => [name, f(value)]));

function answer({ rows, outputs, inputs }) {
  try {
    return mapped(program({ rows, outputs })(mapped(inputs, arrays)), (x) => plain(x.data ? x : { data: [x] }));
  } catch (error) {
    return { error: error.message };
  }
}
/** Run one program again and again, and a fresh one for every step beside it. */
function steps({ program: rows, arrays: named, steps }) {
  const shared = mapped(named, arrays), run = program(rows);
  return steps.map(({ inputs, only }) => {
    const now = mapped(inputs, (x) => shared[x] ?? x);
    return { again: mapped(run(now, only), plain), count: run.count, fresh: mapped(program(rows)(now, only), plain) };
  });
}
const drawn = recipes.map(([recipe, sizes]) => plain(draws(recipe, sizes)));
const answers = { names: Object.keys(OPS), cases: cases.map(answer), series: mapped(series, steps), draws: drawn };
process.stdout.write(JSON.stringify(answers));
