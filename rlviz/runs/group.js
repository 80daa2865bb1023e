// A group of a step as the page shows it: its rows, the push of each token, and how a token's push is drawn.
import { html } from "./draw.js";
import { END, TASKS, wordsOf } from "./tasks.js";

export const NARROW = "(max-width: 900px)";
const FAINT = 1e-3; // of the strongest push: a pull of the KL term that is weaker is not drawn
const WIDEST = 2.5; // an advantage whose bar fills its half

export const percent = (share) => `${Math.round(100 * share)} %`;
export const largest = (values) => values.reduce((most, one) => Math.max(most, one), 0);

/** The text of a token of a step: a character of its task, or a word of the response's text. */
export function textOf({ T, tokens, texts, correct }, at) {
  if (correct) return TASKS.chain.decode(tokens[at]);
  return tokens[at] === END ? "$" : wordsOf(texts[Math.floor(at / T)])[at % T];
}

/** A group of a step: its tokens in rows, and places of their numbers in the step's flat arrays. */
export function groupOf(record, n) {
  const { G, T, tokens, mask, correct, paid, rewards } = record;
  const rows = Array.from({ length: G }, (_, g) => {
    const first = (n * G + g) * T, places = Array.from({ length: T }, (_, t) => first + t).filter((at) => mask[at]);
    const A = places.reduce((sum, at) => sum + record.advantages[at], 0) / Math.max(1, places.length);
    return { places, texts: places.map((at) => textOf(record, at)), isRight: Boolean(correct?.[n * G + g]), isPaid: Boolean(paid[n * G + g]), reward: rewards[n * G + g], A };
  });
  return { prompt: record.prompts[n], rows, isDead: Boolean(record.isDead[n]), isUsed: record.uses[n] > 0 };
}

/** Which rows of a group are shown where not all can be: some that are right, and some that are wrong. */
export function rowsShown(rows, most) {
  const right = [...rows.keys()].filter((i) => rows[i].isRight), wrong = [...rows.keys()].filter((i) => !rows[i].isRight);
  const count = Math.max(most - wrong.length, Math.min(right.length, most >> 1));
  return [...right.slice(0, count), ...wrong.slice(0, most - Math.min(count, right.length))].sort((a, b) => a - b);
}

/** The group of a step that teaches most: its rewards differ most. */
export function mostTelling({ N, G, rewards }) {
  const spread = Array.from({ length: N }, (_, n) => {
    const group = Array.from(rewards.subarray(n * G, n * G + G)), mean = group.reduce((sum, one) => sum + one, 0) / G;
    return group.reduce((sum, one) => sum + (one - mean) ** 2, 0);
  });
  return spread.indexOf(largest(spread));
}

/** A token's push in two: what its advantage does, and what the KL term does. */
export function pushesOf({ slope, pull }, at) {
  const klPull = pull?.[at] || 0;
  return { push: (slope[at] || 0) - klPull, pull: klPull };
}
export const wayOf = (push) => (push > 0 ? "up" : push < 0 ? "down" : "");
/** The strongest push of a step, which the tints of all others are measured by. */
export const strongest = ({ slope }) => largest(Array.from(slope, (one) => Math.abs(one) || 0)) || 1;
export const isPulled = (pull, most) => Math.abs(pull) > FAINT * most;

/** Draw a token's push on its button: tint and mark. most: the strongest push of the step. */
export function drawPush(button, record, at, most) {
  const { push, pull } = pushesOf(record, at), isCut = record.cut[at] > 0, pulled = isPulled(pull, most) ? wayOf(pull) : "", text = button.textContent;
  const words = `${text}: ${push ? `pushed ${wayOf(push)}` : "not pushed"}${isCut ? ", cut by the clip" : ""}${pulled && `, pulled ${pulled} by the KL term`}`;
  button.className = `play-token${push ? ` play-${wayOf(push)}` : ""}${isCut ? " play-cut" : ""}`;
  button.setAttribute("aria-label", words);
  button.style.setProperty("--push", `${Math.round(15 + (75 * Math.abs(push)) / most)}%`);
  button.style.setProperty("--pull", 0.7 + (0.3 * Math.abs(pull)) / most);
  if (pulled) button.dataset.pull = pulled;
  else delete button.dataset.pull;
}

/** A bar to the right or the left, as long as an advantage is large. */
export function makeBar(parent) {
  const fill = html("i", {}, html("span", { className: "play-scale", "aria-hidden": "true" }, parent));
  return (A) => {
    fill.className = A < 0 ? "play-down" : "play-up";
    fill.style.setProperty("--size", `${50 * Math.min(1, Math.abs(A) / WIDEST)}%`);
  };
}
