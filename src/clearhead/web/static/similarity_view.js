// Similarities of a two-tower model: the texts with their scores, one of which can be chosen, and the picture and the
// text side by side on one scale.

import { createBar, createElement, find } from "./dom.js";
import { createLegend, imageSettings, relevanceOf, renderCoverage } from "./explanation_parts.js";
import { formatNumber, formatPercent } from "./format.js";
import * as imageView from "./image_view.js";
import { findMethod, session, state } from "./state.js";
import * as textView from "./text_view.js";

const HIDDEN_CONTROLS = ["layers", "heads", "grid", "shares", "hidden-summary"];

let chooseText = () => {};

// The handler gets the number of the text.
export const onChooseText = (handler) => (chooseText = handler);

export function showSimilarity(explanation) {
  for (const id of HIDDEN_CONTROLS) find(id).hidden = true;
  const isImage = explanation.inputs.some(({ grid }) => grid !== null);
  find("smoothness").hidden = !isImage;
  find("opacity-control").hidden = !isImage;
  find("smooth-name").textContent = "Smooth";
  find("levels").hidden = explanation.inputs.every(({ words }) => words === null);
  // Both choices are there at once.
  if (isImage) nameChoices("Text", "Photo");
  else nameChoices();
  const method = findMethod(explanation.method);
  find("method-summary").textContent = method ? `${method.summary} (${method.paper})` : "";
  showTexts(explanation);
}

// What the choices of a view are about; alone they need no name.
export function nameChoices(levels = "Show", smoothness = "Show") {
  find("levels").firstElementChild.textContent = levels;
  find("smoothness").firstElementChild.textContent = smoothness;
}

function showTexts(explanation) {
  const group = find("compared");
  const hadFocus = group.contains(document.activeElement);
  const { texts } = explanation;
  find("similarity-verdict").replaceChildren(...renderVerdict(explanation));
  find("compared-hint").textContent = texts.length > 1 ? "Choose one to see which parts of both inputs speak for it." : "";
  find("compared-rows").replaceChildren(...texts.map((entry, index) => createRow(entry, index, explanation)));
  // The arrow keys choose, and go on from the new row.
  if (hadFocus) group.querySelector(":checked")?.focus();
}

// After a choice that failed, the row that is shown is checked again.
export function checkShownText() {
  for (const radio of document.querySelectorAll("[name=compared]")) {
    radio.checked = Number(radio.value) === session.explanation.target.index;
  }
}

function renderVerdict(explanation) {
  const note = createElement("small", { textContent: describeRank(explanation.texts, explanation.target.index) });
  return [...textView.markText(explanation.label), ` ${formatSimilarity(explanation)}`, note];
}

// The probability of the text among the others, or how similar it is.
export function formatSimilarity({ probability, score, inputs }) {
  return probability === null || comparesTexts(inputs) ? formatScore(score) : formatPercent(probability);
}

const formatScore = (score) => formatNumber(score).replace("-", "−");

function describeRank(texts, chosen) {
  if (texts.length === 1) return "The similarity, explained below.";
  const isBest = texts.every(({ score }) => score <= texts[chosen].score);
  return isBest ? `The most similar of ${texts.length} texts, explained below.` : "Explained below; another text is more similar.";
}

function createRow(entry, index, { texts, target, inputs }) {
  const isChosen = index === target.index;
  const name = createElement("span", { className: "name", title: entry.text, dir: "auto" }, ...textView.markText(entry.text));
  const share = createElement("span", { className: "share", textContent: describeShare(entry, inputs) });
  const score = createElement("span", { className: "share ch-faint", textContent: formatScore(entry.score), title: "Similarity" });
  const cells = [name, createShareBar(entry, texts, inputs), share, score];
  if (texts.length === 1) return createElement("div", { className: "compared chosen" }, ...cells);
  const radio = createElement("input", { type: "radio", name: "compared", value: index, checked: isChosen, className: "ch-sr" });
  radio.onchange = () => chooseText(index);
  return createElement("label", { className: isChosen ? "compared chosen" : "compared" }, radio, ...cells);
}

const comparesTexts = (inputs) => inputs.every(({ grid }) => grid === null);

// Among texts the softmax of cosines would tell nothing: all are nearly alike.
const describeShare = ({ probability }, inputs) =>
  (probability === null || comparesTexts(inputs) ? "" : formatPercent(probability));

// As long as the probability; of texts as the cosine, or as the product relative to the largest.
function createShareBar({ probability, score }, texts, inputs) {
  if (comparesTexts(inputs)) return createBar(score / Math.max(1, ...texts.map((other) => Math.abs(other.score))));
  // The similarity of a photo to a single text has no end that a bar could reach.
  return probability === null ? createElement("span") : createBar(probability);
}

export function showInputs(explanation) {
  const columns = explanation.inputs.map((input, index) => renderInput(input, nameInput(explanation, index)));
  find("coverage").replaceChildren();
  // Once, because all inputs share a scale; its caption tells what the full colour of a patch and of a word is.
  const scale = { ...explanation.inputs[0].scale, lowest: "", highest: "" };
  find("legend").replaceChildren(...createLegend(explanation, scale));
  find("relevance").replaceChildren(createElement("div", { className: "inputs" }, ...columns));
}

export function nameInput({ inputs }, index) {
  if (inputs[index].grid) return "Photo";
  if (inputs[0].grid) return "Text";
  return index ? "Second text" : "First text";
}

function renderInput(input, name) {
  const content = input.grid ? renderPhoto(input) : renderWords(input);
  return createElement("section", { ariaLabel: name }, createElement("h3", { textContent: name }), ...renderCoverage(input), ...content);
}

function renderPhoto(input) {
  const values = relevanceOf(input).filter((_, index) => !input.tokens[index].special);
  const view = imageView.createImageView(input, session.photo);
  const description = imageView.describeHeatmap(input, values, input.scale);
  imageView.paintImage(view, values, input.scale, { ...imageSettings(), description });
  return [view.frame];
}

function renderWords(input) {
  const spans = textView.splitText(input, state.level, relevanceOf(input));
  return [textView.renderText(input, spans, input.scale).group];
}

// What is known of all inputs: their shares, and notes on the method, which are the same for each.
export function describeInputs({ summary, inputs }) {
  const [{ notes, trust }] = inputs;
  return [summary, ...notes.filter((note) => note !== trust.error)].join(" · ");
}
