// The playground's functions that need no page, for test_playground.py: names and arguments in, values out.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { script, given: payload, calls } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const page = await import(pathToFileURL(script));
const answers = calls.map(([name, ...args]) => page[name](...args.map((arg) => (arg === "GIVEN" ? payload : arg))));
process.stdout.write(JSON.stringify(answers, (_, value) => (typeof value === "number" && Number.isNaN(value) ? "NaN" : value)));
