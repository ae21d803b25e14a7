// The compared explanations in one chart: the model's output as the most relevant features of each are hidden.

import { fetchCurve } from "./api.js";
import { drawLines, meanOf } from "./curve_chart.js";
import { find } from "./dom.js";
import { findModel, formatOutput, isAnswer, state } from "./state.js";

const RANDOM = "at random";

// Below the columns. Each curve is drawn as soon as it is there: those of long inputs take a while.
export async function showCurves(columns, signal) {
  const group = find("method-curves");
  const comparable = isAnswer() ? [] : columns.filter((column) => isComparable(columns[0], column));
  group.hidden = comparable.length < 2;
  if (group.hidden) return;
  group.ariaBusy = "true";
  const measured = [];
  for (const column of comparable) {
    const curve = await fetchOrSkip(column, signal);
    if (signal.aborted) return;
    if (curve) measured.push({ column, curve });
    if (measured.length) showMeasured(measured, comparable);
  }
  group.hidden = !measured.length;
  group.ariaBusy = "false";
}

// Of an earlier question they would be wrong.
export const clearCurves = () => (find("method-curves").hidden = true);

// A number and a probability, or a probability and a difference of two, have no axis in common.
function isComparable(first, { entry, explanation }) {
  if (!first.explanation || !explanation) return false;
  const isRegression = ({ model }) => findModel(model).problem === "regression";
  const isContrast = ({ target }) => target.versus !== null;
  return isRegression(first.entry) === isRegression(entry) && isContrast(first.explanation) === isContrast(explanation);
}

// A curve that cannot be measured leaves the others.
async function fetchOrSkip({ body }, signal) {
  try {
    return await fetchCurve({ ...body, unit: state.level }, signal);
  } catch {
    return null;
  }
}

function showMeasured(measured, columns) {
  const [{ column, curve }] = measured;
  const lines = measured.map((entry) => ({ name: nameColumn(entry.column, columns), counts: entry.curve.counts, values: entry.curve.values }));
  // Random orders are those of one class and model.
  if (!differ(columns, classOf) && !differ(columns, modelOf)) lines.push({ name: RANDOM, counts: curve.counts, values: curve.random });
  const unit = describeUnit(column.explanation);
  const chart = drawLines(lines, unit, formatOutput, column.explanation.target.versus !== null, find("method-chart").clientWidth);
  const means = lines.map((line) => `${line.name} ${formatOutput(meanOf(line))}`).join(", ");
  const rest = measured.length < columns.length ? ` Measuring ${measured.length + 1} of ${columns.length} …` : "";
  find("method-chart").replaceChildren(chart);
  find("method-means").textContent = `Mean output over the curve, lower is better: ${means}.${rest}`;
}

const classOf = ({ explanation }) => explanation.label;
const modelOf = ({ entry }) => entry.model;
const differ = (columns, read) => new Set(columns.map(read)).size > 1;

// The method, with the class and the model where they tell columns apart.
function nameColumn(column, columns) {
  const readers = [({ explanation }) => explanation.method, classOf, modelOf];
  const told = readers.filter((read, index) => index === 0 || differ(columns, read));
  return told.map((read) => read(column)).join(" · ");
}

function describeUnit({ grid, words }) {
  if (grid) return "patches";
  return state.level === "word" && words ? "words" : "tokens";
}
