// Trains in node as a page does, and prints what the worker answers: node run_training.mjs messages.json; used by tests in Python.
import fs from "node:fs";
import { trainer } from "../../rlviz/page/train.js";

const answers = [];
const on = trainer((message) => answers.push(structuredClone(message)));
for (const message of JSON.parse(fs.readFileSync(process.argv[2], "utf8"))) on(message);
const plain = (_, x) => (ArrayBuffer.isView(x) ? Array.from(x) : x); // what is no finite number becomes null
process.once("beforeExit", () => process.stdout.write(JSON.stringify(answers, plain))); // a run that plays ends by itself
