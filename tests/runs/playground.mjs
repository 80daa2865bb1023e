// The playground's functions that need no page, for test_playground.py: names and arguments in, values out.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { script, given, calls } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const page = await import(pathToFileURL(script));
const arrays = (value) => (value?.float ? Float32Array.from(value.float) : value);
const read = (record) => Object.fromEntries(Object.entries(record).map(([name, value]) => [name, arrays(value)]));
const answers = calls.map(([name, ...given_]) => page[name](...given_.map((one) => (one === "GIVEN" ? given : one?.is === "record" ? read(one) : one))));
process.stdout.write(JSON.stringify(answers, (_, value) => (typeof value === "number" && Number.isNaN(value) ? "NaN" : value)));
