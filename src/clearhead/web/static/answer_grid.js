// A grid of the answer's words × the prompt's words. Each row is the explanation of one word, so rows come one by one.

import { createElement, find } from "./dom.js";
import { relevanceOf } from "./explanation_parts.js";
import { formatRelevance } from "./scale.js";
import { colorClass, splitText } from "./text_view.js";

const MAX_COLUMNS = 40;

// Shows the columns: the words of the prompt that are most relevant for the whole answer, in reading order.
export function startGrid(explanation) {
  const spans = promptSpans(explanation);
  const ranked = spans.map((_, index) => index).sort((first, second) => Math.abs(spans[second].value) - Math.abs(spans[first].value));
  const columns = ranked.slice(0, MAX_COLUMNS).sort((first, second) => first - second);
  const characters = Array.from([explanation.text].flat()[0] ?? "");
  const names = columns.map((index) => spans[index].text ?? characters.slice(spans[index].start, spans[index].end).join(""));
  const body = createElement("tbody");
  const corner = createElement("th", { scope: "col" }, createElement("span", { className: "ch-sr", textContent: "answer" }));
  const heads = names.map((name) => createElement("th", { scope: "col" }, createElement("span", { textContent: name })));
  const table = createElement("table", { className: "ch-blocks" });
  table.append(createElement("thead", {}, createElement("tr", {}, corner, ...heads)), body);
  find("grid-rows").replaceChildren(table);
  return { body, columns, names };
}

const promptSpans = (explanation) =>
  splitText(explanation, "word", relevanceOf(explanation)).filter((span) => span.segment === 0);

export function addRow({ body, columns, names }, word, explanation) {
  const spans = promptSpans(explanation);
  const cells = columns.map((index, column) => createCell(spans[index].value, explanation.scale, `${names[column]} → ${word.text}`));
  body.append(createElement("tr", {}, createElement("th", { scope: "row", dir: "auto", textContent: word.text }), ...cells));
}

function createCell(value, scale, name) {
  const number = createElement("span", { className: "ch-sr", textContent: formatRelevance(scale, value) });
  return createElement("td", { className: colorClass(value, scale.full), title: `${name} · ${formatRelevance(scale, value)}` }, number);
}
