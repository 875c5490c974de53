// Requests to this server, and small pieces of DOM.

let key = sessionStorage.getItem("elmo-key");

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function useKey(given) {
  key = given;
  sessionStorage.setItem("elmo-key", given);
}

export async function get(path) {
  return answer(await send(path, {}));
}

export async function post(path, body) {
  return answer(await send(path, { method: "POST", body: JSON.stringify(body) }));
}

async function send(path, options) {
  const headers = { "Content-Type": "application/json" };
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(path, { ...options, headers });
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
}

async function answer(response) {
  const body = await response.json();
  if (!response.ok) throw new Refused(response.status, body.error.message);
  return body;
}

// An element with attributes and children; texts are never read as HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}

// Fill one element from the server: says so meanwhile, and drops an answer that a newer request has overtaken.
const newest = new Map();
export async function fill(target, status, work) {
  const turn = (newest.get(target) ?? 0) + 1;
  newest.set(target, turn);
  try {
    const made = await work();
    if (newest.get(target) === turn) target.replaceChildren(...made);
  } catch (error) {
    if (newest.get(target) === turn) say(status, error);
  }
}

export function say(status, message) {
  const failed = message instanceof Error;
  status.classList.toggle("error", failed);
  status.textContent = failed ? message.message : message;
  if (failed && message.status === 401) document.getElementById("key-form").hidden = false;
  if (failed && !(message instanceof Refused)) console.error(message);
}
