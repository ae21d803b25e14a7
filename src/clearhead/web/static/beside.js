// Other methods, classes and models on the same input, side by side.

import * as api from "./api.js";
import { find, make, options, percent } from "./dom.js";
import { classesOf, fitting } from "./form.js";
import * as photo from "./photo.js";
import { legend } from "./see.js";
import { found, question, state } from "./state.js";
import * as text from "./text.js";

let running = new AbortController();
let changed = () => {};

// What can stand beside the answer: models that read the same kind of input, and their classes.
export function fillBeside(afresh) {
  const names = fitting(found.asked.kind);
  state.beside = state.beside.filter((one) => names.includes(one.model));
  find("columns").ariaBusy = "true"; // until those of this answer are there
  if (!afresh) return;
  options(find("other-model"), names.map((name) => [name, name]), found.asked.model);
  fillClasses(classesOf(found.asked.model).find(([number]) => number === found.asked.target)?.[1]);
}

// Models number their classes each in its own way, so the chosen one is found again by its name.
function fillClasses(chosen) {
  const classes = classesOf(find("other-model").value);
  find("other-classed").hidden = !classes.length;
  options(find("other-target"), [["", "Predicted"], ...classes], classes.find(([, name]) => name === chosen)?.[0]);
}

export function wireBeside(handler) {
  changed = handler;
  find("other-model").onchange = () => fillClasses(find("other-target").selectedOptions[0].textContent);
  find("beside").onclick = () => {
    const [method, target, model] = ["method", "target", "model"].map((name) => find(`other-${name}`).value);
    const options = method === found.asked.method ? found.asked.options : {};
    state.beside = [...state.beside, { method, options, target, model }];
    changed();
  };
}

export async function showBeside() {
  running.abort();
  running = new AbortController();
  const { signal } = running, picture = found.photo, { method, options, target, versus, model } = found.asked;
  const several = state.beside.length ? [{ method, options, target, model }, ...state.beside] : [];
  const asked = several.map((one) => [one, question({ ...one, versus: one.model === model && one.target === target ? versus : "" })]);
  find("columns").ariaBusy = "true";
  const columns = [];
  for (const [one, each] of asked) columns.push(await told(one, each, signal));
  if (signal.aborted) return;
  const answers = columns.map((one) => one.answer).filter(Boolean);
  find("columns").replaceChildren(...columns.map((one, place) => column(one, place, answers, picture)));
  find("columns").ariaBusy = "false";
}

// A column's answer, or why there is none: one that cannot be had leaves the others standing.
async function told(one, asked, signal) {
  try {
    return { one, answer: await api.explain(asked, signal) };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { one, error };
  }
}

// Classes by one method of one model share a scale; other numbers cannot be compared.
function scale(answer, answers) {
  const alike = answers.filter((one) => one.name === answer.name && one.model === answer.model);
  return Math.max(...alike.map(own));
}

function own(answer) {
  const values = answer.tokens.map((token) => token.relevance ?? 0);
  if (answer.grid) return photo.fullOf(values.filter((_, place) => !answer.tokens[place].special));
  return text.largest(text.parts(answer, state.level, values));
}

function column({ one, answer, error }, place, answers, picture) {
  const card = make("article", {}, ...(answer ? answered(answer, scale(answer, answers), picture) : refused(one, error)));
  if (place) {
    const remove = () => {
      state.beside = state.beside.filter((other) => other !== one);
      find("beside").focus();
      changed();
    };
    const label = `Remove ${one.method}${answer ? ` for ${answer.label}` : ""}`;
    card.append(make("button", { type: "button", className: "plain", textContent: "Remove", ariaLabel: label, onclick: remove }));
  }
  return card;
}

function answered(answer, full, picture) {
  const share = answer.probability === null ? "" : ` · ${percent(answer.probability)}`;
  const head = [make("h3", { textContent: `${answer.label}${share}` }), below(answer.method, answer.model)];
  return [...head, ...(answer.grid ? pictured(answer, full, picture) : written(answer, full))];
}

const refused = (one, error) => [make("h3", { textContent: "No answer" }), below(one.method, one.model), make("p", { textContent: error.message })];

const below = (method, model) => make("p", { className: "ch-faint", textContent: `${method} · ${model}` });

function written(answer, full) {
  const values = answer.tokens.map((token) => token.relevance ?? 0);
  const parts = text.parts(answer, state.level, values);
  return [text.paragraphs(answer, parts, full, null).group, legend(answer, full, parts.some((part) => part.value < 0))];
}

function pictured(answer, full, picture) {
  const values = answer.tokens.filter((token) => !token.special).map((token) => token.relevance ?? 0);
  const view = photo.figure(answer, picture, null);
  photo.paint(view, values, full, { smooth: state.smooth, opacity: state.opacity, description: photo.described(answer, values) });
  const drawn = (state.smooth && photo.pixelsOf(answer)) || { values, full };
  return [view.frame, legend(answer, drawn.full, drawn.values.some((value) => value < 0))];
}
