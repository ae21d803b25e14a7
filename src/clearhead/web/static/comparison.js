// Other methods, classes and models for the same input, side by side with the explanation.

import { fetchExplanation } from "./api.js";
import { renderCheck } from "./check_view.js";
import { clearDifferences, showDifferences } from "./difference.js";
import { createElement, fillSelect, fillSelectWithNames, find } from "./dom.js";
import { guard } from "./errors.js";
import { createImageLegend, createLegend, imageSettings, relevanceOf, renderCoverage } from "./explanation_parts.js";
import { classesOf, modelsForKind } from "./form.js";
import { formatPercent } from "./format.js";
import * as imageView from "./image_view.js";
import { fillMethodMenu } from "./method_menu.js";
import { clearCurves, showCurves } from "./method_curves.js";
import { joinScales } from "./scale.js";
import { checkFields, findModel, isSimilarity, pick, session, state } from "./state.js";
import * as textView from "./text_view.js";

const FIRST_METHOD = "balanced-cat";
const SECOND_METHOD = "attn-lrp";
const MAX_COMPARED = 12; // as in link.js

let request = new AbortController();
let onChange = () => {};

// Offers models for the same kind of input, and their classes.
export function fillComparison(isNewModel) {
  const { kind, model, target } = session.question;
  const names = modelsForKind(kind);
  state.compared = state.compared.filter((entry) => names.includes(entry.model));
  find("columns").ariaBusy = "true"; // until showComparison has those of the new explanation
  clearDifferences();
  clearCurves();
  chooseOtherMethod();
  if (!isNewModel) return;
  fillSelectWithNames(find("other-model"), names, model);
  fillClasses(classesOf(model).find(([number]) => number === target)?.[1]);
}

// Another method than the one that is shown, unless the user has chosen one: its twin would tell nothing.
function chooseOtherMethod() {
  const { kind, model, method } = session.question;
  const former = find("other-method").value;
  fillMethodMenu(find("other-method"), kind, findModel(model), former && former !== method ? former : otherThan(method));
}

const otherThan = (method) => (method === SECOND_METHOD ? FIRST_METHOD : SECOND_METHOD);

// Selected by label, because every model numbers its classes in its own order.
function fillClasses(selectedLabel) {
  const classes = classesOf(find("other-model").value);
  const selected = classes.find(([, label]) => label === selectedLabel)?.[0];
  find("other-class-choice").hidden = !classes.length;
  fillSelect(find("other-target"), [["", "Predicted"], ...classes], selected);
}

export function wireComparison(handler) {
  onChange = handler;
  find("other-model").onchange = () => fillClasses(find("other-target").selectedOptions[0].textContent);
  find("add-comparison").onclick = guard(addEntry);
}

function addEntry() {
  const [method, target, model] = ["method", "target", "model"].map((name) => find(`other-${name}`).value);
  const { question } = session;
  const options = method === question.method ? question.options : {};
  const isShown = listEntries().concat(question).some((entry) => entry.method === method && entry.target === target && entry.model === model);
  if (isShown) throw new Error("This explanation is already shown: choose another method, class or model.");
  if (state.compared.length >= MAX_COMPARED) throw new Error(`At most ${MAX_COMPARED} explanations can be compared: remove one first.`);
  state.compared = [...state.compared, { method, options, target, model }];
  onChange();
}

function removeEntry(entry) {
  state.compared = state.compared.filter((other) => other !== entry);
  find("add-comparison").focus(); // the button that had the focus is removed
  onChange();
}

export async function showComparison() {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const { photo } = session; // may change while the columns are fetched
  const bodies = listEntries().map((entry) => [entry, checkFields({ ...entry, versus: contrastOf(entry) })]);
  find("columns").ariaBusy = "true";
  const columns = [];
  for (const [entry, body] of bodies) columns.push({ ...(await fetchColumn(entry, body, signal)), body });
  if (signal.aborted) return;
  const explanations = columns.map((column) => column.explanation).filter(Boolean);
  find("columns").replaceChildren(...columns.map((column, index) => renderColumn(column, index > 0, explanations, photo)));
  find("columns").ariaBusy = "false";
  await showDifferences(columns, photo, signal);
  await showCurves(columns, signal);
}

// The explanation itself is the first column, once there is another.
function listEntries() {
  if (!state.compared.length || isSimilarity()) return [];
  return [pick(session.question, ["method", "options", "target", "model"]), ...state.compared];
}

// A contrast belongs to the class and model that it was chosen for.
function contrastOf({ model, target }) {
  const { question } = session;
  return model === question.model && target === question.target ? question.versus : "";
}

// A column that fails keeps its error, so that the others are shown.
async function fetchColumn(entry, body, signal) {
  try {
    return { entry, explanation: await fetchExplanation(body, signal) };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { entry, error };
  }
}

function renderColumn({ entry, explanation, error }, isRemovable, explanations, photo) {
  const content = explanation
    ? renderExplanation(explanation, sharedScale(explanation, explanations), photo)
    : renderFailure(entry, error);
  const column = createElement("article", {}, ...content);
  if (isRemovable) column.append(createRemoveButton(entry, explanation));
  return column;
}

function createRemoveButton(entry, explanation) {
  const label = explanation ? ` for ${explanation.label}` : "";
  return createElement("button", {
    type: "button", className: "plain", textContent: "Remove", ariaLabel: `Remove ${entry.method}${label}`,
    onclick: () => removeEntry(entry),
  });
}

// Classes explained by the same method and model share a scale; other numbers cannot be compared.
function sharedScale(explanation, explanations) {
  const comparable = explanations.filter(({ name, model }) => name === explanation.name && model === explanation.model);
  return joinScales(explanation.scale, comparable.map(({ scale }) => scale));
}

// An answer may be long: it stands below its name.
const nameOf = ({ answer, label }) => answer?.start ?? label;

const patchValues = (explanation) => relevanceOf(explanation).filter((_, index) => !explanation.tokens[index].special);

const splitExplanation = (explanation) => textView.splitText(explanation, state.level, relevanceOf(explanation));

function renderExplanation(explanation, scale, photo) {
  const share = explanation.probability === null ? "" : ` · ${formatPercent(explanation.probability)}`;
  const heading = createElement("h3", { textContent: `${nameOf(explanation)}${share}` });
  const content = explanation.grid ? renderImage(explanation, scale, photo) : renderText(explanation, scale);
  return [heading, createSubtitle(explanation.method, explanation.model), ...renderCoverage(explanation), ...content, ...renderCheck(explanation)];
}

function renderFailure(entry, error) {
  const heading = createElement("h3", { textContent: "Failed" });
  return [heading, createSubtitle(entry.method, entry.model), createElement("p", { textContent: error.message })];
}

const createSubtitle = (method, model) => createElement("p", { className: "ch-faint", textContent: `${method} · ${model}` });

function renderText(explanation, scale) {
  const spans = splitExplanation(explanation);
  const { group } = textView.renderText(explanation, spans, scale, null);
  return [group, ...createLegend({ label: nameOf(explanation) }, scale)];
}

function renderImage(explanation, scale, photo) {
  const values = patchValues(explanation);
  const view = imageView.createImageView(explanation, photo, null);
  const description = imageView.describeHeatmap(explanation, values, scale);
  imageView.paintImage(view, values, scale, { ...imageSettings(), description });
  return [view.frame, ...createImageLegend(explanation, values, scale)];
}
