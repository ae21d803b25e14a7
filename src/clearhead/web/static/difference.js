// Two models for the same input: what one counts more than the other, as colours, and the agreement in words.

import { fetchDifference } from "./api.js";
import { createElement, find } from "./dom.js";
import { createLegendLines, createSwatches, imageSettings } from "./explanation_parts.js";
import { formatPercent } from "./format.js";
import * as imageView from "./image_view.js";
import { formatRelevance } from "./scale.js";
import * as textView from "./text_view.js";

// The changes of a word and of a patch that get the full colour at least: smaller ones are to look small.
const MIN_FULL = { word: 0.02, patch: 0.002 };

// Below the columns, one for each that another model explains by the method of the first column.
export async function showDifferences([first, ...others], photo, signal) {
  const group = find("differences");
  group.ariaBusy = "true";
  const pairs = others.filter((other) => isComparable(first, other)).map((other) => [first, other]);
  const articles = [];
  for (const pair of pairs) articles.push(await createArticle(pair, photo, signal));
  if (signal.aborted) return;
  group.replaceChildren(...articles);
  group.ariaBusy = "false";
}

// Of an earlier question they would be wrong.
export const clearDifferences = () => find("differences").replaceChildren();

function isComparable(first, other) {
  if (!first.explanation || !other.explanation || first.entry.model === other.entry.model) return false;
  return first.explanation.method === other.explanation.method;
}

// A difference that cannot be told says why, and leaves the others.
async function createArticle(pair, photo, signal) {
  const heading = createElement("h3", { textContent: `From ${pair[0].entry.model} to ${pair[1].entry.model}` });
  try {
    const difference = await fetchDifference({ first: pair[0].body, second: pair[1].body }, signal);
    return createElement("article", {}, heading, ...renderDifference(difference, pair, photo));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return createElement("article", {}, heading, createElement("p", { textContent: error.message }));
  }
}

function renderDifference(difference, pair, photo) {
  const explanations = pair.map(({ explanation }) => explanation);
  const content = difference.grid ? renderPatches(difference, explanations, photo) : renderWords(difference, explanations[0]);
  return [
    createElement("p", { className: "conclusion", textContent: difference.sentence }),
    ...content,
    createLine(describeAgreement(difference)),
    createLine(difference.note),
  ];
}

const createLine = (text) => createElement("p", { className: "ch-faint", textContent: text });

// Changes of shares, which are shares themselves: of a total of 1.
function scaleChanges(full, units) {
  const caption = `Change of each of the ${units} that both models read, in shares of all relevance.`;
  return { measure: "share", full, total: 1, signed: true, caption };
}

function renderWords(difference, explanation) {
  const { change } = difference;
  const scale = scaleChanges(Math.max(MIN_FULL.word, ...change.map(Math.abs)), `${difference.unit}s`);
  const spans = difference.spans.length ? placeWords(difference) : placeTokens(difference, explanation);
  const { group } = textView.renderText({ ...explanation, text: readTexts(explanation) }, spans, scale, null);
  const swatches = [["f1", "f3", "f5", "f7", "f9"], ["a9", "a7", "a5", "a3", "a1"]];
  return [group, ...createLegendLines(scale, ...nameEnds(scale, swatches.map((classNames) => createSwatches(classNames))))];
}

// Of a language model the prompt is compared, since two models write different answers.
const readTexts = ({ answer, text }) => (answer ? [text[0]] : text);

const placeWords = ({ spans, change, first, second }) =>
  spans.map(([segment, start, end], index) => ({
    segment, start, end, tokens: [], value: change[index], names: `${formatPercent(first[index])} → ${formatPercent(second[index])}`,
  }));

function placeTokens({ change }, { tokens }) {
  const content = tokens.filter(({ special }) => !special);
  return change.map((value, index) => ({ text: content[index].token, segment: 0, tokens: [], value }));
}

function renderPatches({ change, grid }, explanations, photo) {
  const explanation = { ...explanations.find((entry) => String(entry.grid) === String(grid)), pixels: null };
  const scale = scaleChanges(Math.max(MIN_FULL.patch, imageView.findFull(change)), "patches");
  const view = imageView.createImageView(explanation, photo, null);
  imageView.paintImage(view, change, scale, { ...imageSettings(), description: describeChanges(change, grid, scale) });
  const ends = ["ch-warm", "ch-cold"].map((className) => createElement("i", { className }));
  return [view.frame, ...createLegendLines(scale, ...nameEnds(scale, ends))];
}

function describeChanges(change, [rows, columns], scale) {
  const most = change.reduce((best, value, index) => (Math.abs(value) > Math.abs(change[best]) ? index : best), 0);
  const place = `row ${Math.floor(most / columns) + 1} of ${rows}, column ${(most % columns) + 1} of ${columns}`;
  return `Photo with what changed between two models. The largest change, ${formatRelevance(scale, change[most])}, is in ${place}.`;
}

// The labels of the two ends of the colours, those that fell first.
function nameEnds(scale, [more, less]) {
  const name = (text) => createElement("span", { textContent: text });
  return [
    [name(`counts less ${formatRelevance(scale, -scale.full)}`), less],
    [more, name(`${formatRelevance(scale, scale.full)} counts more`)],
  ];
}

function describeAgreement({ agreement: { shift, correlation, overlap }, predictions }) {
  const answers = predictions.map(describePrediction).join(", ");
  const numbers = [`relevance moved ${formatPercent(shift)}`, `rank correlation ${correlation.toFixed(2).replace("-", "−")}`, `common strongest ${formatPercent(overlap)}`];
  return `${answers}. Agreement: ${numbers.join(", ")}.`;
}

function describePrediction({ model, label, probability }) {
  return `${model}: ${label}${probability === null ? "" : ` ${formatPercent(probability)}`}`;
}
