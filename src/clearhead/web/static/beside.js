// Other methods, classes and models on the same input, side by side.

import * as api from "./api.js";
import { find, make, percent } from "./dom.js";
import * as photo from "./photo.js";
import { legend } from "./see.js";
import { found, question, state } from "./state.js";
import * as text from "./text.js";

let running = new AbortController();

export async function showBeside() {
  running.abort();
  running = new AbortController();
  const own = { method: state.method, target: state.target, model: state.model };
  const several = state.beside.length ? [own, ...state.beside] : [];
  const answers = [];
  for (const one of several) {
    const versus = one.target === state.target ? state.versus : "";
    answers.push(await api.explain(question({ ...one, versus }), running.signal));
  }
  find("columns").replaceChildren(...answers.map((answer, place) => column(answer, place)));
}

function column(answer, place) {
  const share = answer.probability === null ? "" : ` · ${percent(answer.probability)}`;
  const title = make("h3", { textContent: `${answer.label}${share}` });
  const below = make("p", { className: "ch-faint", textContent: `${answer.method} · ${answer.model}` });
  const card = make("article", {}, title, below, ...(answer.grid ? pictured(answer) : written(answer)));
  if (place) {
    const remove = () => {
      state.beside.splice(place - 1, 1);
      document.dispatchEvent(new Event("beside"));
    };
    card.append(make("button", { type: "button", className: "plain", textContent: "Remove", ariaLabel: `Remove ${answer.method} for ${answer.label}`, onclick: remove }));
  }
  return card;
}

function written(answer) {
  const values = answer.tokens.map((token) => token.relevance ?? 0);
  const parts = text.parts(answer, state.level, values);
  const full = text.largest(parts);
  return [text.paragraphs(answer, parts, full, null).group, legend(answer, full, parts.some((part) => part.value < 0))];
}

function pictured(answer) {
  const values = answer.tokens.filter((token) => !token.special).map((token) => token.relevance ?? 0);
  const view = photo.figure(answer, found.photo, null);
  const full = photo.fullOf(values);
  photo.paint(view, values, full, { smooth: state.smooth, description: photo.described(answer, values) });
  return [view.frame, legend(answer, full, values.some((value) => value < 0))];
}
