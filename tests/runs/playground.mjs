// The playground's functions that need no page, for test_playground.py: names and arguments in, values out.
// "asking" takes how many messages are sent, and what a worker replies to them: what each message was answered comes out.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { script, given: payload, calls } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const page = await import(pathToFileURL(script));
const arrays = (value) => (value?.float ? Float32Array.from(value.float) : value);
const read = (record) => Object.fromEntries(Object.entries(record).map(([name, value]) => [name, arrays(value)]));
async function answered(count, replies) {
  const worker = { sent: [], postMessage: (message) => worker.sent.push(message.id) }, ask = page.asking(worker), answers = Array(count).fill(null);
  for (let i = 0; i < count; i++) ask({ do: "step" }).then((answer) => (answers[i] = answer));
  for (const { to, ...reply } of replies) worker.onmessage({ data: { ...reply, id: worker.sent[to] } });
  await new Promise((done) => setTimeout(done));
  return answers;
}
const call = ([name, ...args]) =>
  name === "asking" ? answered(...args) : page[name](...args.map((arg) => (arg === "GIVEN" ? payload : arg?.is === "record" ? read(arg) : arg)));
const answers = await Promise.all(calls.map(call));
process.stdout.write(JSON.stringify(answers, (_, value) => (typeof value === "number" && Number.isNaN(value) ? "NaN" : value)));
