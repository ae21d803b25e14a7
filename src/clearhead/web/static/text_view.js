// The original text, every character kept, with each word or token on the colour of its relevance.

import { addRovingFocus, createElement } from "./dom.js";
import { formatRelevance } from "./scale.js";

const COLOR_LEVELS = 9;
const LINE_BREAKS_AND_TABS = "\n\t\r";
const JOINERS = "\u200c\u200d";
let invisibleRanges = [];

export const setInvisibleRanges = (ranges) => (invisibleRanges = ranges);

// Splits the text into spans that are coloured and hidden as one. A span knows its characters (start, end, segment),
// the indices of its tokens and their values as one: mostly the sum.
export function splitText(explanation, level, values) {
  const tokens = explanation.tokens
    .map((token, index) => ({ ...token, index, value: values[index] }))
    .filter((token) => !token.special);
  const hasOffsets = explanation.text !== null && tokens.every((token) => token.start !== null);
  if (!hasOffsets) return tokens.map(createSpanWithoutText);
  const unknown = explanation.diagnostics.unknown_token;
  if (explanation.words && (level === "word" || hasLargerUnits(explanation))) {
    return splitIntoWords(explanation, tokens, unknown);
  }
  return splitIntoTokens(tokens, unknown);
}

// Whether sentences or sources were hidden as wholes: their words and tokens have no relevance of their own.
export const hasLargerUnits = ({ diagnostics }) => ["sentence", "source"].includes(diagnostics?.unit);

const createSpanWithoutText = ({ token, index, value }) => ({ text: token, word: token, segment: 0, tokens: [index], value });

function splitIntoWords(explanation, tokens, unknown) {
  const reduce = chooseReduction(explanation.diagnostics);
  return explanation.words.map((word) => createSpan(word, tokens.filter((token) => isInside(token, word)), unknown, reduce));
}

// As `word_reduction` in Python: effects of sub-words that were hidden one by one do not add up to that of their word.
const chooseReduction = (diagnostics) =>
  diagnostics.unit === "sub-word" && diagnostics.adds_up === false ? findStrongest : sumValues;

const sumValues = (values) => values.reduce((sum, value) => sum + value, 0);

const findStrongest = (values) =>
  values.reduce((strongest, value) => (Math.abs(value) > Math.abs(strongest) ? value : strongest), 0);

const isInside = (token, word) =>
  token.segment === word.segment && token.start >= word.start && token.start < word.end && token.end > token.start;

// Tokens that share characters, as the bytes of an emoji do, form one span.
function splitIntoTokens(tokens, unknown) {
  const spans = [];
  for (const token of tokens.filter(({ start, end }) => end > start)) {
    const last = spans.at(-1);
    if (last && last.segment === token.segment && token.start < last.end) extendSpan(last, token);
    else spans.push(createSpan(token, [token], unknown));
  }
  return spans;
}

function extendSpan(span, token) {
  span.tokens.push(token.index);
  span.value += token.value;
  span.end = Math.max(span.end, token.end);
}

const createSpan = ({ segment, start, end, word }, tokens, unknown, reduce = sumValues) => ({
  segment, start, end, isUnknown: tokens.length > 0 && tokens.every(({ token }) => token === unknown),
  tokens: tokens.map((token) => token.index),
  value: reduce(tokens.map((token) => token.value)),
  names: tokens.map((token) => token.token).join(" "),
  word: word ?? tokens.map((token) => token.token).join(" "),
});

// Returns the element of all texts and those of the spans; with `onChoose` the spans are buttons. Without offsets the
// tokens themselves are shown.
export function renderText(explanation, spans, scale, onChoose) {
  const ranks = rankSpans(spans);
  const items = new Map(spans.map((span) => [span, renderSpan(span, scale, ranks.get(span), Boolean(onChoose))]));
  const hasText = spans.every((span) => span.text === undefined);
  const texts = hasText ? [explanation.text].flat() : [null];
  const isCut = explanation.diagnostics?.read_share !== undefined;
  const lines = texts.map((text, segment) => renderLine(text, spans.filter((span) => span.segment === segment), items, isCut));
  const properties = onChoose ? { role: "group", ariaLabel: "Words; choose one to hide it" } : { className: "static" };
  const group = createElement("div", properties, ...lines);
  const shownItems = [...items.values()];
  if (onChoose) addRovingFocus(group, shownItems, 1, onChoose);
  return { group, items: shownItems };
}

function rankSpans(spans) {
  const ranked = [...spans].sort((first, second) => second.value - first.value);
  return new Map(ranked.map((span, index) => [span, `rank ${index + 1} of ${spans.length}`]));
}

function renderLine(text, spans, items, isCut) {
  const line = createElement("p", { className: "reading", dir: "auto", lang: "" });
  if (text === null) line.append(...separate(spans.map((span) => items.get(span))));
  else appendText(line, text, spans, items, isCut);
  return line;
}

const separate = (nodes) => nodes.flatMap((node, index) => (index ? [" ", node] : [node]));

// Offsets count code points, as in Python; JavaScript strings would count a character beyond U+FFFF twice.
function appendText(line, text, spans, items, isCut) {
  const characters = Array.from(text);
  let end = 0;
  for (const span of spans) {
    const item = items.get(span);
    item.append(...markInvisible(characters.slice(span.start, span.end)));
    line.append(...renderGap(characters.slice(end, span.start), isCut && !end), item);
    end = span.end;
  }
  line.append(...renderGap(characters.slice(end), isCut));
}

// Text before the first and after the last token of a text that was cut is not read.
function renderGap(characters, isUnread) {
  const nodes = markInvisible(characters);
  return isUnread && nodes.length ? [createElement("span", { className: "ch-unread" }, ...nodes)] : nodes;
}

function renderSpan(span, scale, rank, isButton) {
  const className = `${span.isUnknown ? "ch-unread" : colorClass(span.value, scale.full)} word`.trim();
  const title = `${span.names ?? span.text} · ${formatRelevance(scale, span.value)} · ${rank} · relevance ${Number(span.value.toPrecision(3))}`;
  const item = createElement("span", { className, title });
  if (span.text !== undefined) item.append(...markInvisible(Array.from(span.text)));
  if (isButton) {
    item.setAttribute("role", "button");
    item.ariaPressed = "false";
  }
  return item;
}

// Classes f1 … f9 (for the class) and a1 … a9 (against it) of the style sheet.
export function colorClass(value, fullScale) {
  if (!(fullScale > 0)) return "";
  const level = Math.round(Math.min(1, Math.abs(value) / fullScale) * COLOR_LEVELS);
  if (level === 0) return "";
  return `${value > 0 ? "f" : "a"}${level}`;
}

// Characters that are invisible or reorder others are shown as a box with their code, so that they cannot deceive.
export const markText = (text) => markInvisible(Array.from(text));

function markInvisible(characters) {
  const nodes = [];
  let plain = "";
  for (const [index, character] of characters.entries()) {
    if (!isInvisible(character) || joins(character, characters[index + 1])) plain += character;
    else {
      nodes.push(plain, createCodeBox(character));
      plain = "";
    }
  }
  return [...nodes, plain].filter((node) => node !== "");
}

// Joiners belong to emoji sequences and to scripts such as Persian; before an ASCII character they only hide.
const joins = (character, following) => JOINERS.includes(character) && following > "\u007f";

function isInvisible(character) {
  const code = character.codePointAt(0);
  return !LINE_BREAKS_AND_TABS.includes(character) && invisibleRanges.some(([low, high]) => code >= low && code <= high);
}

function createCodeBox(character) {
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return createElement("span", { className: "ch-hidden", textContent: `⟨${code}⟩` });
}
