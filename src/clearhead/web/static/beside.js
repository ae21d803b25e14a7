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
  const signal = running.signal, picture = found.photo;
  const { method, target, versus, model } = found.asked;
  const own = { method, target, model };
  const several = state.beside.length ? [own, ...state.beside] : [];
  const questions = several.map((one) => question({ ...one, versus: one.target === target ? versus : "" }));
  const answers = [];
  for (const one of questions) answers.push(await api.explain(one, signal));
  if (signal.aborted) return;
  find("columns").replaceChildren(...answers.map((answer, place) => column(answer, place, scale(answer, answers), picture)));
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

function column(answer, place, full, picture) {
  const share = answer.probability === null ? "" : ` · ${percent(answer.probability)}`;
  const title = make("h3", { textContent: `${answer.label}${share}` });
  const below = make("p", { className: "ch-faint", textContent: `${answer.method} · ${answer.model}` });
  const card = make("article", {}, title, below, ...(answer.grid ? pictured(answer, full, picture) : written(answer, full)));
  if (place) {
    const remove = () => {
      state.beside.splice(place - 1, 1);
      document.dispatchEvent(new Event("beside"));
    };
    card.append(make("button", { type: "button", className: "plain", textContent: "Remove", ariaLabel: `Remove ${answer.method} for ${answer.label}`, onclick: remove }));
  }
  return card;
}

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
