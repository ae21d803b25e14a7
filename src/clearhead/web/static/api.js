// Calls of the JSON API. Explanations are cached, so that switching back to a method is immediate.

const MAX_CACHED = 200;
const CATALOGUE = ["models", "methods", "characters", "choices", "runs", "tasks"];
const explanations = new Map();

// Models, methods, invisible characters, runs and tasks of the server.
export async function fetchCatalogue() {
  const lists = await Promise.all(CATALOGUE.map((name) => readJson(fetch(`/api/${name}`))));
  return Object.fromEntries(CATALOGUE.map((name, index) => [name, lists[index]]));
}

// With a ticket the server tells how far the request is.
export async function fetchExplanation(body, signal, ticket = "") {
  const key = JSON.stringify(body);
  if (!explanations.has(key)) cacheExplanation(key, await postJson(addressOf(body, "/api/explain"), body, signal, ticket));
  return explanations.get(key);
}

// Requests with several texts are those of two-tower models.
const addressOf = (body, address) => ("texts" in body ? address.replace(/^\/api(\/explain)?/, "/api/similarity") : address);

// A Map keeps the order of insertion, so its first key is the oldest.
function cacheExplanation(key, explanation) {
  explanations.set(key, explanation);
  if (explanations.size > MAX_CACHED) explanations.delete(explanations.keys().next().value);
}

export const fetchHidden = (body, signal) => postJson("/api/hide", body, signal);
export const fetchDifference = (body, signal) => postJson("/api/difference", body, signal);
export const fetchCurve = (body, signal, ticket) => postJson("/api/curve", body, signal, ticket);
export const fetchProgress = (ticket) => readJson(fetch(`/api/progress/${ticket}`));
export const fetchSample = async () => readBlob(fetch("/sample.jpg"));
export const createTicket = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(16)).join("");

export async function fetchFile(type, body) {
  return readBlob(post(addressOf(body, `/api/file/${type}`), body));
}

export const fetchRunExamples = (name, parameters) => readJson(fetch(`${addressOfSource({ name })}/examples?${new URLSearchParams(parameters)}`));
export const fetchTaskExamples = (name, parameters) => readJson(fetch(`${addressOfSource({ name, isTask: true })}/examples?${new URLSearchParams(parameters)}`));
export const fetchPredictions = (body, signal) => postJson("/api/predict", body, signal);

// An image of a run or task as a data URL, which is how the page keeps uploaded images too.
export const fetchSourceImage = async (source, example) => readDataUrl(await readBlob(fetch(addressOfImage(source, example))));

export const addressOfImage = (source, example) => `${addressOfSource(source)}/picture?${new URLSearchParams({ example })}`;

const addressOfSource = ({ name, isTask }) => `/api/${isTask ? "tasks" : "runs"}/${encodeURIComponent(name)}`;

export function readDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("The photo cannot be read."));
    reader.readAsDataURL(file);
  });
}

const postJson = (path, body, signal, ticket) => readJson(post(path, body, signal, ticket));

function post(path, body, signal, ticket = "") {
  const headers = { "content-type": "application/json", ...(ticket && { "x-clearhead-ticket": ticket }) };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function readJson(pending) {
  const response = await requireOk(pending);
  return response.json();
}

async function readBlob(pending) {
  const response = await requireOk(pending);
  return response.blob();
}

async function requireOk(pending) {
  const response = await pending;
  if (!response.ok) throw new Error(await readError(response));
  return response;
}

async function readError(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}
