// The original text, every character kept, each word or token on its colour.

import { make, rove, signed } from "./dom.js";

const STEPS = 9;
let unseen = [];

export const showCharacters = (ranges) => (unseen = ranges);

export function step(value, full) {
  if (!(full > 0)) return "";
  const size = Math.round(Math.min(1, Math.abs(value) / full) * STEPS);
  return size === 0 ? "" : `${value > 0 ? "f" : "a"}${size}`;
}

// Stretches of text: what is coloured and hidden as one, with the places of its tokens.
export function parts(answer, level, values) {
  const own = answer.tokens
    .map((token, place) => ({ ...token, place, value: values[place] }))
    .filter((token) => !token.special);
  if (answer.text === null || own.some((token) => token.start === null)) {
    return own.map((token) => ({ text: token.token, segment: 0, places: [token.place], value: token.value }));
  }
  return level === "word" && answer.words ? words(answer, own) : merged(own);
}

function words(answer, own) {
  return answer.words.map((word) => {
    const inside = own.filter((t) => t.segment === word.segment && t.start >= word.start && t.start < word.end && t.end > t.start);
    return stretch(word, inside);
  });
}

// Tokens that share characters, as the bytes of an emoji do, are one stretch.
function merged(own) {
  const found = [];
  for (const token of own.filter((one) => one.end > one.start)) {
    const last = found.at(-1);
    if (last && last.segment === token.segment && token.start < last.end) {
      last.places.push(token.place);
      last.value += token.value;
      last.end = Math.max(last.end, token.end);
    } else found.push(stretch(token, [token]));
  }
  return found;
}

const stretch = ({ segment, start, end }, tokens) => ({
  segment, start, end,
  places: tokens.map((token) => token.place),
  value: tokens.reduce((sum, token) => sum + token.value, 0),
  names: tokens.map((token) => token.token).join(" "),
});

export const largest = (found) => Math.max(0, ...found.map((part) => Math.abs(part.value)));

export function paragraphs(answer, found, full, choose) {
  const texts = answer.text === null ? [null] : [answer.text].flat();
  const items = [];
  const ranks = new Map([...found].sort((one, two) => two.value - one.value).map((part, place) => [part, `rank ${place + 1} of ${found.length}`]));
  const nodes = texts.map((text, segment) => {
    const line = make("p", { className: "reading", dir: "auto", lang: "" });
    const letters = text === null ? null : Array.from(text);
    let at = 0;
    for (const part of found.filter((one) => one.segment === segment)) {
      if (letters) line.append(...shown(letters.slice(at, part.start)));
      else if (at++) line.append(" ");
      const content = letters ? shown(letters.slice(part.start, part.end)) : shown(Array.from(part.text));
      const item = piece(part, full, content, choose, ranks.get(part));
      items.push(item);
      line.append(item);
      if (letters) at = part.end;
    }
    if (letters) line.append(...shown(letters.slice(at)));
    return line;
  });
  const group = make("div", choose ? { role: "group", ariaLabel: "Words; choose one to hide it" } : { className: "still" }, ...nodes);
  if (choose) rove(group, items, 1, choose);
  return { group, items };
}

function piece(part, full, content, choose, rank) {
  const name = `${step(part.value, full)} word`.trim();
  const item = make("span", { className: name, title: `${part.names ?? part.text} · ${signed(part.value)} · ${rank}` }, ...content);
  if (choose) {
    item.setAttribute("role", "button");
    item.ariaPressed = "false";
  }
  return item;
}

// Characters that cannot be seen, or that reorder others, stand in a labelled box.
function shown(letters) {
  const nodes = [];
  let plain = "";
  for (const letter of letters) {
    const code = letter.codePointAt(0);
    if ("\n\t\r".includes(letter) || !unseen.some(([low, high]) => code >= low && code <= high)) plain += letter;
    else {
      const label = code.toString(16).toUpperCase().padStart(4, "0");
      nodes.push(plain, make("span", { className: "ch-hidden", textContent: `⟨${label}⟩` }));
      plain = "";
    }
  }
  return [...nodes, plain].filter((node) => node !== "");
}
