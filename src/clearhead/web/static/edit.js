// Edits the text and compares: the original and the edited text side by side, and what moved between them.

import { fetchExplanation } from "./api.js";
import { createElement, find } from "./dom.js";
import { guard } from "./errors.js";
import { createLegend, relevanceOf, renderCoverage } from "./explanation_parts.js";
import { formatPercent } from "./format.js";
import { joinScales } from "./scale.js";
import { checkFields, explainFields, formatOutput, isRegression, session, shownModel, state } from "./state.js";
import * as textView from "./text_view.js";

const MAX_MOVED = 8;

let request = new AbortController();

// Offers the text of the shown question; what was edited stays as long as the question does.
export function fillEdit() {
  const { kind, text } = session.question;
  find("edit").hidden = !["text", "pair"].includes(kind);
  if (find("edit").dataset.original === text) return;
  find("edit").dataset.original = text;
  resetEdit();
}

function resetEdit() {
  request.abort();
  find("edited").value = session.question.text;
  find("edit-result").replaceChildren();
}

export function wireEdit() {
  find("compare-edit").onclick = guard(compareEdit);
  find("reset-edit").onclick = resetEdit;
}

// Both are explained for the class of the original, so that their numbers mean the same.
async function compareEdit() {
  const text = find("edited").value;
  if (!text.trim()) throw new Error("Enter the edited text first: there is nothing to compare.");
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const { question, explanation } = session;
  const target = explanation.target.index === null ? {} : { target: String(explanation.target.index) };
  find("edit-result").ariaBusy = "true";
  try {
    const original = await fetchExplanation(checkFields(target, question), signal);
    const edited = await fetchExplanation(explainFields(target, { ...question, text }), signal);
    if (!signal.aborted && question === session.question) showEdit(original, edited);
  } finally {
    if (request.signal === signal) find("edit-result").ariaBusy = "false";
  }
}

function showEdit(original, edited) {
  const scales = [original.scale, edited.scale];
  const columns = [["Original", original], ["Edited", edited]].map(([name, explanation]) => renderColumn(name, explanation, scales));
  const moved = listMoved(splitWords(original), splitWords(edited));
  find("edit-result").replaceChildren(
    createElement("p", { className: "outcome", textContent: describeChange(original, edited) }),
    createElement("div", { className: "ch-side" }, ...columns),
    ...renderMoved(moved),
  );
}

function renderColumn(name, explanation, scales) {
  const scale = joinScales(explanation.scale, scales);
  const { group } = textView.renderText(explanation, splitWords(explanation), scale, null);
  const heading = createElement("h3", { textContent: `${name}: ${describePrediction(explanation)}` });
  return createElement("article", {}, heading, ...renderCoverage(explanation), group, ...createLegend(explanation, scale));
}

const splitWords = (explanation) => textView.splitText(explanation, state.level, relevanceOf(explanation));

function describePrediction({ classes, diagnostics: { predicted, predicted_probability: share } }) {
  if (isRegression()) return formatOutput(classes[0]);
  return predicted ? `${predicted} ${formatPercent(share)}` : "";
}

const outputOf = ({ classes, probability }) => (isRegression() ? classes[0] : probability);

function describeChange(original, edited) {
  const [before, after] = [original, edited].map(outputOf);
  const name = isRegression() ? "The output" : `The probability of ${nameTarget(original)}`;
  const [first, second] = [original, edited].map(({ diagnostics }) => diagnostics.predicted);
  const flip = first === second ? "" : ` The prediction changes from ${first} to ${second}.`;
  return `${name} goes from ${formatOutput(before)} to ${formatOutput(after)}.${flip}`;
}

const nameTarget = ({ target, label }) => shownModel().labels[target.index] ?? label;

// Words whose share of all relevance changed most; words that only one text has count as 0 in the other.
export function listMoved(before, after) {
  const [first, second] = [before, after].map(sumShares);
  const names = [...new Set([...first.keys(), ...second.keys()])];
  const moved = names.map((name) => ({ name, before: first.get(name), after: second.get(name) }));
  const size = ({ before: old = 0, after: now = 0 }) => Math.abs(now - old);
  return moved.sort((one, other) => size(other) - size(one)).slice(0, MAX_MOVED);
}

// The shares of words, by word; those of a word that occurs several times are added.
function sumShares(spans) {
  const total = spans.reduce((sum, { value }) => sum + Math.abs(value), 0) || 1;
  const shares = new Map();
  for (const span of spans) shares.set(span.word, (shares.get(span.word) ?? 0) + span.value / total);
  return shares;
}

function renderMoved(moved) {
  const rows = moved.map(({ name, before, after }) =>
    createElement("tr", {}, createElement("th", { scope: "row", dir: "auto" }, ...textView.markText(name)), createShare(before), createShare(after)));
  const head = ["What moved", "original", "edited"].map((textContent) => createElement("th", { scope: "col", textContent }));
  const table = createElement("table", { className: "moved" });
  table.append(createElement("thead", {}, createElement("tr", {}, ...head)), createElement("tbody", {}, ...rows));
  return [table, createElement("p", { className: "ch-faint", textContent: "Shares of all relevance; – where the text does not have the word." })];
}

const createShare = (share) => createElement("td", { textContent: share === undefined ? "–" : `${(share * 100).toFixed(1)} %` });
