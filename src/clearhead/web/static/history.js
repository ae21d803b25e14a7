// The questions since the page was opened, the latest first and each once.

import { createElement, find } from "./dom.js";
import { guard } from "./errors.js";
import { formatPercent } from "./format.js";
import { formatSimilarity } from "./similarity_view.js";
import { explainFields, isCompared, listTexts, session, takeSnapshot } from "./state.js";
import { markText } from "./text_view.js";

const MAX_ENTRIES = 30;
const MAX_LABEL = 30;
let entries = [];

export function addToHistory(onRecall) {
  const entry = createEntry();
  const others = entries.filter(({ key }) => key !== entry.key);
  entries = [entry, ...others].slice(0, MAX_ENTRIES);
  find("history").replaceChildren(...entries.map((item) => renderEntry(item, onRecall)));
}

function createEntry() {
  const { explanation, question } = session;
  const share = describeShare(explanation);
  return {
    title: describeInput(question),
    result: `${clip(explanation.label)}${share} · ${question.method}`,
    key: JSON.stringify(explainFields()),
    snapshot: structuredClone(takeSnapshot()), // a copy, because the view changes afterwards
  };
}

function describeShare(explanation) {
  if (explanation.inputs) return ` ${formatSimilarity(explanation)}`;
  return explanation.probability === null ? "" : ` ${formatPercent(explanation.probability)}`;
}

// Answers may be long.
const clip = (label) => (label.length > MAX_LABEL ? `${label.slice(0, MAX_LABEL - 1)}…` : label);

function describeInput({ kind, text, second, texts, imageName, prompt }) {
  if (isCompared(kind)) return [kind === "caption" ? imageName || "a photo" : text, ...listTexts(texts)].join(" · ");
  if (kind === "prompt") return prompt;
  if (kind === "image") return imageName || "a photo";
  return [text, kind === "pair" && second].filter(Boolean).join(" · ");
}

function renderEntry({ title, result, snapshot }, onRecall) {
  const cells = [title, result].map((text) => createElement("span", {}, ...markText(text)));
  const button = createElement("button", { type: "button", onclick: guard(() => onRecall(snapshot)) }, ...cells);
  return createElement("li", {}, button);
}
