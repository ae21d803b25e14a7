// The answer of a language model: its words with their probabilities, one of which can be chosen, and the shares of
// relevance of prompt, earlier words and special tokens.

import { createElement } from "./dom.js";
import { formatNumber, formatPercent } from "./format.js";
import { colorClass } from "./text_view.js";

// Returns the element of the answer, and those of its words, which colorWords colours. `onChoose` gets the characters
// of the chosen word, or null for the whole answer. Radio buttons, so that arrow keys choose.
export function renderAnswer({ answer }, chosenWord, onChoose) {
  const items = answer.words.map((word) => createElement("span", { className: "tint", textContent: word.text }));
  const choices = answer.words.length > 1 ? answer.words.map((word) => [word.start, word.end]) : [];
  const labels = answer.words.map((word, index) => createWordLabel(word, items[index], choices[index], onChoose));
  const paragraph = createElement("p", { className: "ch-text", dir: "auto", lang: "" }, ...separateWords(answer, labels));
  const start = choices.length ? [createStartLabel(answer.start, onChoose)] : [];
  const hint = choices.length ? "Choose a word to see what led to it." : "";
  const legend = createElement("legend", {}, "Answer ", createElement("span", { className: "ch-faint", textContent: hint }));
  const group = createElement("fieldset", { className: "ch-steps" }, legend, ...start, paragraph);
  checkWord(group, chosenWord);
  return { group, items };
}

// The characters between words stay; offsets count code points.
function separateWords({ text, words }, labels) {
  const characters = Array.from(text);
  const nodes = [];
  let end = 0;
  words.forEach((word, index) => {
    nodes.push(characters.slice(end, word.start).join(""), labels[index]);
    end = Math.max(end, word.end);
  });
  return nodes;
}

function createStartLabel(name, onChoose) {
  const label = createElement("label", { className: "ch-step" }, createRadio(null, onChoose));
  label.append(createElement("span", { textContent: name }));
  return label;
}

function createWordLabel(word, item, choice, onChoose) {
  const number = createElement("small", { textContent: formatShort(word.probability) });
  const title = `${word.text} · ${formatPercent(word.probability)}`;
  const label = createElement(choice ? "label" : "span", { className: "ch-step", title }, item, number);
  if (choice) label.prepend(createRadio(choice, onChoose));
  if (word.versus) {
    const foil = `rather than ${word.versus} ${formatShort(word.versus_probability)}`;
    label.append(createElement("small", { textContent: foil }));
  }
  return label;
}

function createRadio(word, onChoose) {
  const value = word ? word.join("-") : "";
  return createElement("input", { type: "radio", name: "word", className: "ch-sr", value, onchange: () => onChoose(word) });
}

export function checkWord(group, word) {
  const value = word ? word.join("-") : "";
  for (const radio of group.querySelectorAll("[name=word]")) radio.checked = radio.value === value;
}

// Few characters, to fit below a short word.
function formatShort(share) {
  const percent = share * 100;
  if (percent >= 10) return `${Math.round(percent)} %`;
  return percent >= 0.1 ? `${percent.toFixed(1)} %` : "<0.1 %";
}

// Colours each word of the answer by its relevance for what follows it.
export function colorWords(items, words, spans, scale) {
  items.forEach((item, index) => {
    const { start, end } = words[index];
    // A sentence that is relevant as a whole has several words.
    const inside = spans.filter((span) => span.segment === 1 && span.start < end && (span.start >= start || span.end > start));
    const value = inside.reduce((sum, span) => sum + span.value, 0);
    item.className = `${colorClass(value, scale.full)} tint`.trim();
  });
}

export const logProbability = ({ answer }) =>
  answer.steps.filter((step) => step.explained).reduce((sum, step) => sum + Math.log(step.probability), 0);

export function describeAnswer(explanation) {
  const steps = explanation.answer.steps.filter((step) => step.explained);
  const total = logProbability(explanation);
  const mean = steps.length > 1 ? ` · mean per token ${formatPercent(Math.exp(total / steps.length))}` : "";
  return `log p ${formatNumber(total)} · probability ${formatPercent(Math.exp(total))}${mean}`;
}

export function renderShares({ answer: { groups } }) {
  if (!groups.length) return [];
  const bars = groups.map(({ group, size }) => {
    const bar = createElement("i", { className: `ch-${group}` });
    bar.style.width = `${size * 100}%`;
    return bar;
  });
  const names = groups.map(({ group, name, size }) => createElement("span", { className: "ch-share" },
    createElement("i", { className: `ch-${group}` }), createElement("span", { textContent: `${name} ${formatPercent(size)}` })));
  const spoken = groups.map(({ name, size }) => `${name} ${formatPercent(size)}`).join(", ");
  return [
    createElement("div", { className: "ch-shares", role: "img", ariaLabel: `Shares of the relevance: ${spoken}` }, ...bars),
    createElement("p", { className: "ch-legend" }, ...names),
  ];
}
