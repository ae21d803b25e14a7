// State of the page: the question that the user is asking, the question that is shown, and how it is viewed.
// A question is an input with a model, a method and a class; of a language model, a prompt and perhaps an answer.
// Texts of the form belong to form.js until they are asked.

import { formatNumber, formatPercent } from "./format.js";

export const DEFAULT_QUESTION = {
  kind: "text", text: "", second: "", texts: "", overflow: "error", image: null, imageName: "", focus: "",
  format: "plain", prompt: "", system: "", answer: "", foil: "", length: 32,
  model: "", method: "balanced-cat", options: {}, target: "", versus: "",
};
// `word` is the chosen word of an answer, as its first and last character; null is the whole answer.
export const DEFAULT_VIEW = { level: "word", smooth: true, opacity: 75, layer: 0, check: true, word: null, hidden: [], compared: [] };
export const INPUT_KEYS = {
  text: ["text", "overflow", "focus"], pair: ["text", "second", "overflow"], image: ["image", "imageName", "focus"],
  caption: ["image", "imageName", "texts", "overflow"], similarity: ["text", "texts", "overflow"],
  prompt: ["format", "prompt", "system", "answer", "foil", "length"],
};

// Kinds of two-tower models, and what is compared with texts.
const FIRST_INPUTS = { caption: "image", similarity: "text" };

export const state = { ...DEFAULT_QUESTION, ...DEFAULT_VIEW };

// `question` is the one whose explanation is shown: tests, comparisons and files are about that one, also while the
// next question is being answered. `chosen` explains the chosen word of an answer, or is the explanation itself.
export const session = { models: [], methods: [], choices: {}, example: null, question: null, explanation: null, chosen: null, photo: null, curve: null };

export const pick = (source, keys) => Object.fromEntries(keys.map((key) => [key, source[key]]));

export const questionKeys = (kind) => ["kind", ...INPUT_KEYS[kind], "model", "method", "options", "target", "versus"];

export const askedQuestion = () => pick(state, Object.keys(DEFAULT_QUESTION));

// The shown question and its view, without inputs of other kinds.
export function takeSnapshot() {
  return { ...pick(session.question, questionKeys(session.question.kind)), ...pick(state, Object.keys(DEFAULT_VIEW)) };
}

// Whether two questions have the same input and model, so that the indices of hidden tokens mean the same.
export function hasSameInput(first, second) {
  if (!first || !second || first.kind !== second.kind) return false;
  return [...INPUT_KEYS[first.kind], "model"].every((key) => first[key] === second[key]);
}

export const findModel = (name) => session.models.find((model) => model.name === name);
export const findMethod = (name) => session.methods.find((method) => method.name === name);
export const isLanguageModel = (model) => model.problem === "answer";
export const isSimilarity = () => Boolean(session.explanation?.inputs);
export const hasPhoto = (kind) => INPUT_KEYS[kind].includes("image");
export const isCompared = (kind) => kind in FIRST_INPUTS;
export const isAnswer = () => Boolean(session.explanation?.answer);

export function acceptsKind(model, kind) {
  if (isCompared(kind) || model.compares) return model.compares && model.kind === FIRST_INPUTS[kind];
  if (kind === "prompt" || isLanguageModel(model)) return kind === "prompt" && isLanguageModel(model);
  return (model.kind === "image") === (kind === "image");
}

export const shownModel = () => findModel(session.question.model);
export const isRegression = () => shownModel().problem === "regression";

// The model's output as text: a probability, or the number of a regression.
export const formatOutput = (value) => (isRegression() ? formatNumber(value) : formatPercent(value));

// Fields of a request that say what the input, the model and the class are.
export function inputFields(changes = {}, question = session.question) {
  const choice = { ...pick(question, ["model", "target", "versus"]), ...changes };
  return { ...sourceFields(question), model: choice.model, ...focusFields(question, choice.model), ...classFields(choice), ...wordFields(question, changes.word) };
}

function sourceFields(question) {
  const { kind, text, second, image, overflow } = question;
  if (isCompared(kind)) return { ...(hasPhoto(kind) ? { image } : { text }), texts: listTexts(question.texts), overflow };
  if (kind === "prompt") return promptFields(question);
  if (kind === "image") return { image };
  if (kind === "pair") return { pair: [text, second], overflow };
  return { text, overflow };
}

// The chosen part of the output, of models that have many.
function focusFields({ kind, focus }, modelName) {
  const canChoose = INPUT_KEYS[kind].includes("focus") && findModel(modelName)?.focus;
  return canChoose && focus.trim() ? { focus: focus.trim() } : {};
}

// One text per line.
export const listTexts = (lines) => lines.split("\n").map((line) => line.trim()).filter(Boolean);

// Without an answer the model writes one.
function promptFields({ format, prompt, system, answer, length }) {
  const source = format === "chat" ? { chat: listMessages(system, prompt) } : { text: prompt };
  return answer.trim() ? { ...source, answer } : { ...source, max_new_tokens: length };
}

function listMessages(system, prompt) {
  const messages = [{ role: "user", content: prompt }];
  return system.trim() ? [{ role: "system", content: system }, ...messages] : messages;
}

// What the answer is compared with belongs to its beginning: a chosen word is explained by itself.
function wordFields({ kind, foil }, word) {
  if (kind !== "prompt") return {};
  if (word) return { focus: word };
  return foil.trim() ? { versus: foil.trim() } : {};
}

// An empty choice is left out: the server then explains the prediction.
function classFields(choice) {
  const chosen = ["target", "versus"].filter((key) => choice[key] !== "");
  return Object.fromEntries(chosen.map((key) => [key, Number(choice[key])]));
}

// Fields of a request for an explanation. Options belong to the question's own method; others use their defaults.
export function explainFields(changes = {}, question = session.question) {
  const method = changes.method ?? question.method;
  const ownOptions = method === question.method ? question.options : {};
  return { ...inputFields(changes, question), method, options: changes.options ?? ownOptions };
}

// The same with a check, unless it is switched off.
export function checkFields(changes = {}, question = session.question) {
  const fields = explainFields(changes, question);
  return state.check ? { ...fields, check: true } : fields;
}
