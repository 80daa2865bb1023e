// The search in the navigation: entries by their words, and a field that offers what it finds. The index comes as a script when
// the field is first used, because a page that is opened from the disk may fetch nothing.

const STOP = new Set( // words that choose nothing
  ("a although always an and are as at be been but by can do does for from get getting go goes has have how i if in into is it its me my of " +
    "on or please should so still that the their then there these this to was what when where which while why will with you your").split(" "),
);
const SAME = { // what people write → what the pages say
  begin: "first", clipfrac: "clip", completion: "response", decrease: "fall", degrade: "fall", diverge: "differ", down: "fall", drop: "fall",
  grad: "gradient", huge: "explode", increase: "rise", inf: "nan", infinite: "nan", lower: "worse", lr: "learning", mismatch: "differ",
  moe: "expert", one: "1", retokenize: "token", spike: "large", start: "first", starting: "first", stuck: "stay",
  swanlab: "log", tensorboard: "log", truncate: "cut", up: "rise", wandb: "log", zero: "0",
};
const GREEK = { ε: "epsilon", β: "beta", λ: "lambda", γ: "gamma" };
const TOKEN = /!{2,}|\d+(?:\.\d+)?(?![\p{L}\d_])|[\p{L}\p{N}_]+(?:[./-][\p{L}\p{N}_]+)*\+*/gu;
const CHINESE = /\p{Script=Han}/u;
const WORTH = { title: 10, name: 6, text: 3, kind: 1 }; // what a word is worth there
const UNKNOWN = 1; // what a word weighs that stands nowhere
const ENOUGH = 0.3; // of the query's weight must be found
const RESULTS = 8;

const stem = (word) => word.replace(/^([a-z]{3,}?)(?:ions?|ing|ed|es|s|e|ly)$/, "$1").replace(/iz(?=[aei]|$)/, "is");
const spelled = (name) => stem(name.toLowerCase().replace(/[./_-]/g, ""));
const same = new Map(Object.entries(SAME).map((pair) => pair.map(stem)));

/** Return a text's words, each as the ways to read it, the ways as [word, weight]: a name whole, between / and ., by single words. */
function readings(text) {
  return [...text.replace(/[εβλγ]|\p{Script=Han}+/gu, (match) => ` ${GREEK[match] ?? match} `).matchAll(TOKEN)].flatMap(([token]) => {
    if (token[0] === "!") return [[[["!!", 1]]]];
    if (/^[\d.]+$/.test(token)) return [[[[String(+token), 1]]]];
    if (CHINESE.test(token)) { // no spaces there: by signs two and two
      const signs = [...token];
      return [[signs.length < 3 ? [[token, 1]] : signs.slice(1).map((sign, i) => [signs[i] + sign, 1])]];
    }
    const meaningful = (parts) => parts.filter((part) => part && !STOP.has(part.toLowerCase()));
    const names = meaningful(token.split(/[./]/)), parts = meaningful(token.replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2").split(/[ ./_-]/));
    const ways = [meaningful([token]), names, parts];
    return parts.length ? [ways.map((way) => way.map((word) => [spelled(word), (way === parts && parts.length > 1 ? 0.6 : 1)]))] : [];
  });
}

/** Return whether one letter more, less, other or exchanged makes a of b. */
function isNear(a, b) {
  if (Math.abs(a.length - b.length) > 1) return false;
  let i = 0;
  while (i < a.length && a[i] === b[i]) i += 1;
  const tail = (x, from) => x.slice(from);
  return (
    tail(a, i + 1) === tail(b, i + 1) || tail(a, i + 1) === tail(b, i) || tail(a, i) === tail(b, i + 1) ||
    (a[i] === b[i + 1] && a[i + 1] === b[i] && tail(a, i + 2) === tail(b, i + 2))
  );
}

/** Return how well a word of an entry answers one that was typed, from 0 to 1. */
function likeness(typed, word) {
  if (typed === word) return 1;
  if (CHINESE.test(typed)) return word.includes(typed) ? 0.8 : 0;
  return typed.length > 1 && word.startsWith(typed) ? (0.6 * typed.length) / word.length : 0;
}

/** Return a function: what was typed → the entries that answer it, the best first. */
export function searcher({ kinds, entries }) {
  const places = new Map(); // word → entry → what the word is worth there
  const titles = entries.map(([kind, title, , , look, words], at) => {
    const fields = words.split(" ").filter((word) => /[a-z][_/.][a-z]/.test(word)), [name] = look.split(" · ");
    const names = [...fields, ...(CHINESE.test(name) ? [name] : [])].join(" "); // a term's look begins with its Chinese name
    const parts = { kind: kinds[kind][0], text: `${look} ${words}`, name: names, title };
    for (const [part, text] of Object.entries(parts)) {
      for (const [word, weight] of readings(text).flat(2)) {
        if (!places.has(word)) places.set(word, new Map());
        places.get(word).set(at, Math.max(places.get(word).get(at) ?? 0, WORTH[part] * weight));
      }
    }
    return readings(title).length;
  });

  const answers = (alike) => {
    const best = new Map();
    for (const [word, entriesOf] of places) {
      const how = alike(word);
      if (how) for (const [at, worth] of entriesOf) best.set(at, Math.max(best.get(at) ?? 0, how * worth));
    }
    return best;
  };

  /** Return what a typed word is worth in the entries that have it, and what the word weighs: a rare one more. */
  const weighed = ([typed, weight]) => {
    const other = same.get(typed);
    let matches = answers((word) => Math.max(likeness(typed, word), other ? 0.8 * likeness(other, word) : 0));
    if (!matches.size && typed.length >= 5) matches = answers((word) => (word.length >= 4 && isNear(typed, word) ? 0.6 : 0));
    const rare = weight * (matches.size ? Math.log(1 + entries.length / matches.size) : UNKNOWN);
    return { matches, rare };
  };

  return (query) => {
    const score = new Float64Array(entries.length), covered = new Float64Array(entries.length), titled = new Float64Array(entries.length);
    let total = 0;
    for (const ways of readings(query)) {
      const best = new Map(); // entry → [worth, covered, in its title] by the way that is worth most there
      let most = 0;
      for (const way of ways) {
        const sums = new Map(), words = way.map(weighed);
        for (const { matches, rare } of words) {
          for (const [at, worth] of matches) {
            const sum = sums.get(at) ?? [0, 0, 0], inTitle = worth >= WORTH.title / 2 ? 1 : 0;
            sums.set(at, [rare * worth, rare, inTitle].map((value, i) => sum[i] + value / way.length));
          }
        }
        if (sums.size) most = Math.max(most, words.reduce((sum, { rare }) => sum + rare, 0) / way.length);
        for (const [at, sum] of sums) {
          const [better, worse] = [sum, best.get(at) ?? [0, 0, 0]].sort(([a], [b]) => b - a);
          best.set(at, [better[0] + 0.2 * worse[0], better[1], better[2]]);
        }
      }
      total += most || UNKNOWN;
      for (const [at, [sum, share, title]] of best) {
        score[at] += sum;
        covered[at] += share;
        titled[at] += title;
      }
    }
    return entries
      .map((entry, at) => [score[at] * (covered[at] / total) * (1 + titled[at] / titles[at]) * kinds[entry[0]][1], at])
      .filter(([worth, at]) => worth > 0 && covered[at] >= ENOUGH * total)
      .sort(([a], [b]) => b - a)
      .slice(0, RESULTS)
      .map(([, at]) => entries[at]);
  };
}

/**
 * Make a field offer what it finds, in the pattern of a combobox with a list: arrows choose, Enter goes, Escape closes, / comes here.
 * place: holds the field, the list and what is said of it; its data-search leads to the site's folder. load: → the index.
 */
export function searchBox(place, load) {
  const field = place.querySelector("input"), list = place.querySelector("[role=listbox]"), status = place.querySelector("[role=status]");
  let find, listed = "";
  const isOpen = () => !list.hidden;
  const mark = (option) => {
    for (const one of list.children) one.setAttribute("aria-selected", one === option);
    field.setAttribute("aria-activedescendant", option.id);
  };
  const move = (option) => {
    mark(option);
    option.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    list.hidden = true;
    listed = "";
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const option = ([kind, title, path, anchor, look], at) => {
    const one = document.createElement("a");
    Object.assign(one, { id: `found-${at}`, role: "option", tabIndex: -1, onpointermove: () => mark(one) });
    one.href = place.dataset.search + path + (anchor && `#${encodeURIComponent(anchor)}`);
    for (const [tag, textContent] of [["small", kind], ["b", title], ["span", look]]) {
      one.append(Object.assign(document.createElement(tag), { textContent }));
    }
    return one;
  };
  const show = async () => {
    const query = field.value.trim();
    if (!query) return close();
    find ??= load().then((index) => [index.kinds, searcher(index)]);
    const [kinds, search] = await find;
    if (field.value.trim() !== query || (isOpen() && listed === query)) return;
    const results = search(query).map(([kind, ...fields]) => [kinds[kind][0], ...fields]);
    status.textContent = results.length ? `${results.length} found` : "Nothing found";
    const instead = [kinds[0][0], `Nothing found for “${query}”: all symptoms`, "course/symptoms.html", "", "What a log says, in people's words."];
    if (!results.length) results.push(instead);
    list.replaceChildren(...results.map(option));
    list.hidden = false;
    listed = query;
    field.setAttribute("aria-expanded", "true");
    mark(list.firstChild);
  };
  const chosen = () => list.querySelector("[aria-selected=true]");
  const keys = {
    ArrowDown: () => (isOpen() ? move(chosen().nextSibling ?? list.firstChild) : show()),
    ArrowUp: () => (isOpen() ? move(chosen().previousSibling ?? list.lastChild) : show()),
    Enter: () => show().then(() => chosen()?.click()),
    Escape: () => (isOpen() ? close() : (field.value = "")),
  };
  field.oninput = field.onfocus = show;
  field.onkeydown = (event) => {
    if (!keys[event.key] || event.isComposing) return;
    event.preventDefault();
    keys[event.key]();
  };
  list.onmousedown = (event) => event.preventDefault(); // the field keeps the focus, or the list would be gone before the click
  list.onclick = () => field.blur();
  place.addEventListener("focusout", close);
  addEventListener("keydown", (event) => {
    const isTyped = event.target.closest?.("textarea, select, [contenteditable], input:not([type=range], [type=radio], [type=checkbox])");
    if (event.key !== "/" || isTyped || event.ctrlKey || event.metaKey || event.altKey || !field.offsetParent) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}
