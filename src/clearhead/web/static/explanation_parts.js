// What all views of explanations share: relevance, legends, and how heat maps are drawn.

import { createElement } from "./dom.js";
import { chooseHeatmap } from "./image_view.js";
import { formatRelevance } from "./scale.js";
import { state } from "./state.js";

// Relevance of every token; NaN and infinity arrive as null.
export const relevanceOf = (explanation) => explanation.tokens.map((token) => token.relevance ?? 0);

// How much of the text was cut off, and how much of it the model does not know.
export const renderCoverage = ({ coverage }) => coverage.map((note) => createElement("p", { className: "notice", textContent: note }));

export const imageSettings = () => ({ smooth: state.smooth, opacity: state.opacity });

// What the colours and the numbers mean.
export function createLegend({ label }, scale) {
  // Inputs that share a scale have no numbers at its ends.
  const { highest = formatRelevance(scale, scale.full), lowest = formatRelevance(scale, -scale.full) } = scale;
  const positive = [createSwatches(["f1", "f3", "f5", "f7", "f9"]), createLabel(`${highest} for ${label}`)];
  const negative = [createLabel(`against ${lowest}`), createSwatches(["a9", "a7", "a5", "a3", "a1"])];
  return createLegendLines(scale, scale.signed ? negative : [], positive);
}

// "or more", because the colours of a heat map end before the strongest values.
export function createImageLegend(explanation, patchValues, patchScale) {
  const { scale } = chooseHeatmap(explanation, patchValues, patchScale, state.smooth);
  const full = formatRelevance(scale, scale.full);
  const positive = [createElement("i", { className: "ch-warm" }), createLabel(`${full} or more for ${explanation.label}`)];
  const negative = [createLabel(`against ${formatRelevance(scale, -scale.full)} or more`), createElement("i", { className: "ch-cold" })];
  return createLegendLines(scale, scale.signed ? negative : [], positive);
}

export const createLegendLines = ({ caption }, negative, positive) => [
  createElement("p", { className: "ch-legend" }, ...negative, createLabel("0"), ...positive),
  createElement("p", { className: "ch-faint", textContent: caption }),
];

const createLabel = (text) => createElement("span", { textContent: text });

export const createSwatches = (classNames) => createElement("b", {}, ...classNames.map((className) => createElement("i", { className })));
