// The relevance of attention heads: a grid with a row per block, the last on top, on one scale.

import { createElement } from "./dom.js";
import { formatRelevance, scaleShares } from "./scale.js";
import { colorClass } from "./text_view.js";

// NaN arrives as null: a block with fewer heads than others has no value there.
export const scaleHeads = (heads) => scaleShares(heads.flat().filter((value) => value !== null), "heads");

export function renderHeads(heads) {
  const scale = scaleHeads(heads);
  const rows = heads.map((values, block) => renderRow(values, block, scale)).reverse();
  const table = createElement("table", { className: "ch-heads" });
  table.append(createElement("thead", {}, renderNumbers(heads[0].length)), createElement("tbody", {}, ...rows));
  return createElement("div", { className: "ch-scroll", tabIndex: 0, role: "group", ariaLabel: "Relevance per head" }, table);
}

function renderNumbers(count) {
  const numbers = Array.from({ length: count }, (_, head) => createElement("th", { scope: "col", textContent: head }));
  return createElement("tr", {}, createElement("th", { scope: "col", textContent: "head" }), ...numbers);
}

function renderRow(values, block, scale) {
  const name = `block ${block}`;
  const cells = values.map((value, head) => renderCell(value, `${name}, head ${head}`, scale));
  return createElement("tr", {}, createElement("th", { scope: "row", textContent: name }), ...cells);
}

function renderCell(value, name, scale) {
  if (value === null) return createElement("td");
  const number = createElement("span", { className: "ch-sr", textContent: formatRelevance(scale, value) });
  const title = `${name} · ${formatRelevance(scale, value)}`;
  return createElement("td", { className: colorClass(value, scale.full), title }, number);
}
