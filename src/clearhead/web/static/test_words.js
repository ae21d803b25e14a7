// What the test found, in words: beside random choices, and for the model's prediction.

import { formatPercent } from "./format.js";
import { isRegression, session, shownModel } from "./state.js";

const LIKELY = 0.5;

// The verdict of the server's rank test; `format` turns an output into text.
export function describeControls({ verdict, sets, low, high }, format) {
  if (verdict === "more") return `These matter more than random ones: none of ${sets} random choices does as much.`;
  if (verdict === "less") return `These matter less than random ones: each of ${sets} random choices does more.`;
  return `Whether these matter more than random ones cannot be told: ${sets} random choices range from ${format(low)} to ${format(high)}.`;
}

// Says what the model predicts now, if that is something else than with nothing hidden; otherwise empty.
export function describeFlip(classes) {
  if (isRegression() || !classes.length) return "";
  const [before, now] = [session.explanation.classes, classes].map(listPredicted);
  if (before.join() === now.join()) return "";
  return `The prediction changes from ${nameClasses(before)} to ${nameClasses(now, classes)}.`;
}

// Numbers of the predicted classes: the most probable one, or all likely ones if several can be true.
function listPredicted(classes) {
  if (shownModel().problem === "single-label") return [classes.indexOf(Math.max(...classes))];
  return classes.flatMap((share, index) => (share > LIKELY ? [index] : []));
}

function nameClasses(indices, classes = null) {
  if (!indices.length) return "none of the classes";
  return indices.map((index) => nameClass(index, classes)).join(", ");
}

function nameClass(index, classes) {
  const label = shownModel().labels[index];
  return classes ? `${label} (${formatPercent(classes[index])})` : label;
}
