// The shipped tasks in a page: their prompts, split as `small_models.tasks` splits them, and their judges, a few lines each.

export const END = 1; // the token that ends a response
const CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz=#+-:;,?. "; // from token 2 on

/** Return the tokens of a text of these characters. */
export const encode = (text) => Array.from(text, (character) => 2 + CHARACTERS.indexOf(character));
/** Return the text of a token. */
export const decode = (token) => (token === 0 ? "<pad>" : token === END ? "$" : CHARACTERS[token - 2]);
/** Return the text of a response up to its end. */
export const textOf = (tokens) => Array.from(tokens, decode).join("").split("$")[0];

const digits = (text) => Array.from(text, Number).reduce((sum, digit) => sum + digit, 0);
const numbered = (count, width) => Array.from({ length: count }, (_, n) => String(n).padStart(width, "0"));
const answered = (pattern) => (prompt, response) => {
  const match = pattern.exec(response);
  return { format: match !== null, correct: match !== null && Number(match[1]) === digits(prompt.slice(0, 5)) % 10 };
};
const sumAsked = (prompt) => Number(prompt.slice(0, 2)) + Number(prompt[3]);
const chain = {
  longest: 9, heldOut: 0.1, prompts: () => numbered(1e5, 5).map((n) => `${n}=`), grade: answered(/^[0-9]*#([0-9])$/),
  gold: (prompt) => String(digits(prompt.slice(0, 5)) % 10),
};
const sorted = (prompt) => Array.from(prompt.slice(0, 5)).sort().join("");
const letters = (octal) => octal.replace(/./g, (digit) => "abcdefgh"[digit]);

/** name → {longest: tokens of a response, heldOut: share of prompts, prompts(), grade(prompt, response), gold(prompt)}. */
export const TASKS = {
  chain,
  ramble: { ...chain, longest: 24, grade: answered(/^[0-9]*\.*#([0-9])$/) },
  sort: {
    longest: 7,
    heldOut: 0.1,
    prompts: () => Array.from({ length: 8 ** 5 }, (_, n) => `${letters(n.toString(8).padStart(5, "0"))}=`),
    grade: (prompt, response) => ({
      format: /^[a-h]{5}$/.test(response), correct: response === sorted(prompt),
    }),
    gold: sorted,
  },
  trip: {
    longest: 5,
    heldOut: 0.2,
    prompts: () => numbered(19, 2).flatMap((n) => numbered(10, 1).map((digit) => `${n}+${digit}=`)),
    grade: (prompt, response) => {
      const format = /^[0-9]{3}$/.test(response);
      return { format, correct: format && digits(response) === sumAsked(prompt) };
    },
    gold: (prompt) => numbered(1000, 3).find((answer) => digits(answer) === sumAsked(prompt)),
  },
};

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});
function checksum(text) {
  let sum = -1;
  for (let i = 0; i < text.length; i++) sum = CRC[(sum ^ text.charCodeAt(i)) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}
/** Return the prompts of a task to train on and those that are held out, in the order of Python's. */
export function split(task) {
  const all = task.prompts(); // in order of their texts, which decides between equal checksums
  const order = Float64Array.from(all, (text, i) => checksum(text) * 2 ** 20 + i).sort();
  const ordered = Array.from(order, (key) => all[key % 2 ** 20]);
  const count = Math.max(1, Math.round(ordered.length * task.heldOut));
  return { train: ordered.slice(count), heldOut: ordered.slice(0, count) };
}
