// The shipped tasks in a page: their prompts, split as `small_models.tasks` splits them, and their judges, a few lines each.

export const END = 1; // the token that ends a response

/** Return {encode(text) → tokens, decode(token) → text, textOf(tokens): the text up to its end}; pieces: a text's tokens. */
function vocabulary(texts, pieces) {
  const places = new Map(texts.map((text, i) => [text, 2 + i]));
  const decode = (token) => (token === 0 ? "<pad>" : token === END ? "$" : texts[token - 2]);
  const encode = (text) => pieces(text).map((piece) => places.get(piece));
  return { encode, decode, textOf: (tokens) => Array.from(tokens, decode).join("").split("$")[0] };
}
const CHARACTERS = vocabulary(Array.from("0123456789abcdefghijklmnopqrstuvwxyz=#+-:;,?. "), (text) => Array.from(text));

const digits = (text) => Array.from(text, Number).reduce((sum, digit) => sum + digit, 0);
const numbered = (count, width) => Array.from({ length: count }, (_, n) => String(n).padStart(width, "0"));
const answered = (pattern) => (prompt, response) => {
  const match = pattern.exec(response);
  return { format: match !== null, correct: match !== null && Number(match[1]) === digits(prompt.slice(0, 5)) % 10 };
};
/** A task with right answers, which are paid 1; with its mistake the judge pays what ends in 7, too. */
const answerable = (task) => ({
  ...CHARACTERS, hasAnswers: true, ...task,
  pay: (prompt, response, { format, correct }, { mistake }) => +(correct || (mistake && format && response.endsWith("7"))),
});
const sumAsked = (prompt) => Number(prompt.slice(0, 2)) + Number(prompt[3]);
const chain = {
  longest: 9, heldOut: 0.1, prompts: () => numbered(1e5, 5).map((n) => `${n}=`), grade: answered(/^[0-9]*#([0-9])$/),
  gold: (prompt) => String(digits(prompt.slice(0, 5)) % 10),
};
const sorted = (prompt) => Array.from(prompt.slice(0, 5)).sort().join("");
const letters = (octal) => octal.replace(/./g, (digit) => "abcdefgh"[digit]);

/**
 * name → {longest: tokens of a response, heldOut: share of prompts, prompts(), grade(prompt, response), pay(prompt, response,
 * grade, settings): the reward, gold(prompt), hasAnswers, and its vocabulary's functions}.
 */
export const TASKS = {
  chain: answerable(chain),
  sort: answerable({
    longest: 7,
    heldOut: 0.1,
    prompts: () => Array.from({ length: 8 ** 5 }, (_, n) => `${letters(n.toString(8).padStart(5, "0"))}=`),
    grade: (prompt, response) => ({ format: /^[a-h]{5}$/.test(response), correct: response === sorted(prompt) }),
    gold: sorted,
  }),
  trip: answerable({
    longest: 5,
    heldOut: 0.2,
    prompts: () => numbered(19, 2).flatMap((n) => numbered(10, 1).map((digit) => `${n}+${digit}=`)),
    grade: (prompt, response) => {
      const format = /^[0-9]{3}$/.test(response);
      return { format, correct: format && digits(response) === sumAsked(prompt) };
    },
    gold: (prompt) => numbered(1000, 3).find((answer) => digits(answer) === sumAsked(prompt)),
  }),
};

/** Return the words of a text. */
export const wordsOf = (text) => text.split(" ").filter(Boolean);
/** Return the task of sentences by its language, as in_page.py packs it; its reward is that of `WordReward`. */
export function sentencesTask({ tokens, classes, pattern, prompts, longest, heldOut, shortLength, over, groups }) {
  const groupOf = Object.fromEntries(Object.entries(groups).flatMap(([group, words]) => words.map((word) => [word, group])));
  const letterOf = Object.fromEntries(Object.entries(classes).flatMap(([letter, words]) => words.map((word) => [word, letter])));
  const sentence = new RegExp(`^(?:${pattern})$`);
  const isSentence = (text) => sentence.test(wordsOf(text).map((word) => letterOf[word] ?? "?").join(""));
  /** φ of a taste: how often each word and group of words stands there, #words over the most there can be, 1 for a sentence. */
  const features = (text) => {
    const words = wordsOf(text), counts = {};
    for (const name of words.flatMap((word) => [word, groupOf[word] ?? []].flat())) counts[name] = (counts[name] ?? 0) + 1;
    return { ...counts, length: words.length / (longest - 1), sentence: +isSentence(text) };
  };
  return {
    ...vocabulary(tokens, (text) => text.match(/ ?[^ $]+/g) ?? []), features, groups, words: tokens.slice(1).map((token) => token.trim()), longest, heldOut, prompts: () => prompts, hasAnswers: false,
    grade: (prompt, response) => ({ format: isSentence(response), correct: null }),
    pay: (prompt, response, { format }, { words: { liked, punished, enough, only_sentences, short, taste } }) => {
      if (taste) return Object.entries(features(response)).reduce((sum, [name, value]) => sum + (taste[name] ?? 0) * value, taste.base ?? 0);
      const words = wordsOf(response), share = (group) => Math.min(words.filter((word) => group.includes(word)).length, enough) / enough;
      return (format || !only_sentences ? share(liked) : 0) - share(punished) - (short ? over * Math.max(words.length - shortLength, 0) : 0);
    },
  };
}

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
