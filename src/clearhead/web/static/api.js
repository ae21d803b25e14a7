// Questions to the server; an answer is kept, so that going back to a method costs nothing.

const KEPT = 60;
const answers = new Map();

export async function lists() {
  const names = ["models", "methods", "characters", "runs"];
  const found = await Promise.all(names.map((name) => read(fetch(`/api/${name}`))));
  return Object.fromEntries(names.map((name, place) => [name, found[place]]));
}

export async function explain(question, signal) {
  const key = JSON.stringify(question);
  if (!answers.has(key)) {
    const answer = await post("/api/explain", question, signal);
    answers.set(key, answer);
    if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  }
  return answers.get(key);
}

export const hide = (asked, signal) => post("/api/hide", asked, signal);
export const curve = (asked, signal) => post("/api/curve", asked, signal);

export async function file(kind, question) {
  const answer = await send(`/api/file/${kind}`, question);
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.blob();
}

export function examples(run, asked) {
  return read(fetch(`/api/runs/${encodeURIComponent(run)}/examples?${new URLSearchParams(asked)}`));
}

// A picture of a run, as the page keeps pictures: inside an address.
export async function picture(run, example) {
  const answer = await fetch(`/api/runs/${encodeURIComponent(run)}/picture?${new URLSearchParams({ example })}`);
  if (!answer.ok) throw new Error(await reason(answer));
  return address(await answer.blob());
}

export function address(file) {
  return new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => fail(new Error("The photo cannot be read."));
    reader.readAsDataURL(file);
  });
}

const post = (path, body, signal) => read(send(path, body, signal));

function send(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function read(pending) {
  const answer = await pending;
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

async function reason(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}
