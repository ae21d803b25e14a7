// The check of the explanation: whether its strongest words or patches matter, and how exact its numbers are.

import { fetchExplanation } from "./api.js";
import { createElement, find } from "./dom.js";
import { relevanceOf } from "./explanation_parts.js";
import { showDiagnosis, showRelevance } from "./explanation_view.js";
import { nameInput } from "./similarity_view.js";
import { checkFields, isSimilarity, session, state } from "./state.js";

const CHANGED = 1e-4; // relative to the largest: what rounding moves without being seen

let request = new AbortController();

// Checks what is shown; of an answer, the chosen word. With the check switched off, shows the explanation without it.
export async function showChecked() {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const { question } = session;
  const { word } = state;
  showPending();
  try {
    const checked = await fetchExplanation(checkFields(word ? { word } : {}, question), signal);
    if (!signal.aborted && question === session.question && word === state.word) replaceShown(checked, word);
  } finally {
    if (!signal.aborted) showCheck();
  }
}

// The checked explanation may have been computed with more digits.
function replaceShown(checked, word) {
  const isSame = hasSameRelevance(session.chosen, checked);
  session.chosen = checked;
  if (!word) session.explanation = checked;
  if (!isSame) showRelevance();
  showDiagnosis();
}

function hasSameRelevance(first, second) {
  const [before, after] = [first, second].map((explanation) => listInputs(explanation).flatMap(relevanceOf));
  const largest = Math.max(...after.map(Math.abs));
  return before.every((value, index) => Math.abs(value - after[index]) <= CHANGED * largest);
}

// Two-tower models explain each input by itself.
const listInputs = (explanation) => explanation.inputs ?? [explanation];

function showPending() {
  find("check").hidden = !state.check;
  find("check").ariaBusy = "true";
  find("check").replaceChildren(createLine("Checking …"));
}

export function showCheck() {
  find("check").hidden = !state.check;
  find("check").ariaBusy = "false";
  find("check").replaceChildren(...listInputs(session.chosen).flatMap(renderNamedCheck));
  if (state.layer && session.chosen.check) find("check").append(createLine("The check is of all blocks together, not of the one that is shown."));
}

// Of several inputs the name of each stands before its check.
function renderNamedCheck(input, index) {
  const lines = renderCheck(input);
  if (isSimilarity()) lines[0]?.prepend(createElement("strong", { textContent: `${nameInput(session.chosen, index)} · ` }));
  return lines;
}

// The verdict and what it rests on, or why there is none, and the error bar.
export function renderCheck({ check, trust }) {
  const lines = check ? [renderVerdict(check, trust)] : [];
  const others = [trust.unchecked && `Not checked: ${trust.unchecked}`, trust.error];
  return [...lines, ...others.filter(Boolean).map(createLine)];
}

function renderVerdict({ verdict }, { meaning, evidence }) {
  const mark = createElement("b", { className: `ch-${verdict}`, textContent: verdict });
  return createElement("p", { className: "ch-check" }, "Check ", mark, `: ${meaning}. `, createElement("span", { textContent: evidence }));
}

const createLine = (textContent) => createElement("p", { className: "ch-faint", textContent });
