// The answer: verdict, classes, and the text or photo with its colours.

import { bar, find, make, percent, signed } from "./dom.js";
import * as photo from "./photo.js";
import { answering, found, state, told } from "./state.js";
import * as text from "./text.js";

const CLASSES = 5;
const view = { parts: [], items: [], figure: null, full: 0, values: [] };

export function showAnswer(toggle) {
  const answer = found.answer;
  find("empty").hidden = true;
  for (const id of ["seen", "test", "compare", "keep"]) find(id).hidden = false;
  showVerdict(answer);
  showClasses(answer);
  showTools(answer);
  showRelevance(toggle);
  find("diagnosis").textContent = diagnosis(answer);
}

function showVerdict(answer) {
  const number = answering().problem === "regression" ? answer.classes[0] : answer.probability;
  const share = number === null ? "" : ` ${told(number)}`;
  const predicted = answer.diagnostics.predicted;
  const lines = [`${answer.label}${share}`];
  const note = predicted && predicted !== answering().labels[answer.target.index] ? `The model itself predicts ${predicted}.` : "What the model says, and what is explained below.";
  find("verdict").replaceChildren(...lines, make("small", { textContent: note }));
}

function showClasses(answer) {
  const labels = answering().labels;
  const ranked = answer.classes.map((share, place) => ({ share, place })).sort((one, two) => two.share - one.share);
  const chosen = [answer.target.index, answer.target.versus];
  const kept = answering().problem === "regression" ? [] : ranked.filter(({ place }, rank) => rank < CLASSES || chosen.includes(place));
  find("classes").replaceChildren(...kept.map(({ share, place }) => {
    const cells = [make("span", { textContent: labels[place], title: labels[place] }), bar(share), make("span", { className: "share", textContent: percent(share) })];
    return make("li", { className: place === answer.target.index ? "chosen" : "" }, ...cells);
  }));
}

function showTools(answer) {
  const image = answer.grid !== null;
  find("levels").hidden = image || answer.words === null;
  find("smoothness").hidden = find("opacities").hidden = !image;
  find("smooth-name").textContent = answer.pixels ? "Pixels" : "Smooth";
  find("layers").hidden = answer.layers === null;
  const blocks = answer.layers?.length ?? 0;
  state.layer = Math.min(state.layer, blocks);
  find("layer").max = blocks;
  find("layer").value = state.layer;
  find("layer-name").textContent = state.layer ? `${state.layer} of ${blocks}` : "all";
  find("layer").setAttribute("aria-valuetext", state.layer ? `block ${state.layer} of ${blocks}` : "all blocks");
  const method = found.methods.find((one) => one.name === answer.method);
  find("method-summary").textContent = method ? `${method.summary} (${method.paper})` : "";
}

const relevance = (answer) => (state.layer && answer.layers ? answer.layers[state.layer - 1] : answer.tokens.map((token) => token.relevance));

export function showRelevance(toggle) {
  const answer = found.answer;
  const values = relevance(answer).map((value) => value ?? 0);
  if (answer.grid) showPhoto(answer, values, toggle);
  else showText(answer, values, toggle);
  showHidden();
}

function showText(answer, values, toggle) {
  view.parts = text.parts(answer, state.level, values);
  view.full = text.largest(view.parts);
  const { group, items } = text.paragraphs(answer, view.parts, view.full, (place) => toggle(view.parts[place].places));
  view.items = items;
  view.figure = null;
  find("shown").replaceChildren(group);
  showLegend(answer, view.full, view.parts.some((part) => part.value < 0));
}

function showPhoto(answer, values, toggle) {
  const places = answer.tokens.flatMap((token, place) => (token.special ? [] : [place]));
  view.parts = places.map((place) => ({ places: [place], value: values[place] }));
  view.values = places.map((place) => values[place]);
  view.full = photo.fullOf(view.values);
  view.figure = photo.figure(answer, found.photo, (place) => toggle(view.parts[place].places));
  view.items = view.figure.items;
  find("shown").replaceChildren(view.figure.frame);
  const drawn = (state.smooth && photo.pixelsOf(answer)) || { values: view.values, full: view.full };
  showLegend(answer, drawn.full, drawn.values.some((value) => value < 0));
}

// What is hidden, on the text or photo.
export function showHidden() {
  const hidden = new Set(state.hidden);
  const gone = view.parts.map((part) => part.places.length > 0 && part.places.every((place) => hidden.has(place)));
  view.items.forEach((item, place) => {
    if (view.figure) item.ariaSelected = String(gone[place]);
    else {
      item.ariaPressed = String(gone[place]);
      item.classList.toggle("gone", gone[place]);
    }
  });
  if (!view.figure) return;
  const patches = new Set(gone.flatMap((one, place) => (one ? [place] : [])));
  photo.paint(view.figure, view.values, view.full, { smooth: state.smooth, opacity: state.opacity, hidden: patches, description: photo.described(found.answer, view.values) });
}

export function legend(answer, full, negative) {
  if (answer.grid) return photoLegend(answer, full, negative);
  const swatches = (names) => make("b", {}, ...names.map((name) => make("i", { className: name })));
  const below = negative ? [make("span", { textContent: `against ${signed(-full)}` }), swatches(["a9", "a7", "a5", "a3", "a1"])] : [];
  const above = [swatches(["f1", "f3", "f5", "f7", "f9"]), make("span", { textContent: `${signed(full)} for ${answer.label}` })];
  return make("p", { className: "ch-legend" }, ...below, make("span", { textContent: "0" }), ...above);
}

function photoLegend(answer, full, negative) {
  const below = negative ? [make("span", { textContent: `against ${signed(-full)} or more` }), make("i", { className: "ch-cold" })] : [];
  const above = [make("i", { className: "ch-warm" }), make("span", { textContent: `${signed(full)} or more for ${answer.label}` })];
  return make("p", { className: "ch-legend" }, ...below, make("span", { textContent: "0" }), ...above);
}

const showLegend = (answer, full, negative) => find("legend").replaceChildren(legend(answer, full, negative));

function diagnosis(answer) {
  const said = answer.diagnostics;
  const special = answer.tokens.filter((token) => token.special).map((token) => `${token.token} ${signed(token.relevance)}`).join(", ");
  const lines = [special && `special tokens: ${special}`];
  if (said.conservation_gap !== undefined) lines.push(`relevance adds up to within ${Number(said.conservation_gap).toExponential(1)}`);
  if (said.completeness_gap !== undefined) lines.push(`completeness gap ${Number(said.completeness_gap).toPrecision(2)}`);
  if (said.samples !== undefined) lines.push(`${said.samples} samples`);
  return lines.filter(Boolean).join(" · ");
}
