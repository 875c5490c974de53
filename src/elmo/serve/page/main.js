// The frame of the page: the model's name, the key, and a tab for words and for every trained task.

import { element, get, say, useKey } from "./api.js";
import { taskPanel } from "./tasks.js";
import { startWords } from "./words.js";

const tabs = document.getElementById("tabs");

function addTab(name, label, panel) {
  const tab = element("button", { role: "tab", id: `tab-${name}`, "aria-controls": panel.id, type: "button" }, label);
  tab.addEventListener("click", () => select(tab));
  tabs.append(tab);
}

function select(chosen) {
  for (const tab of tabs.children) {
    const selected = tab === chosen;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !selected;
  }
}

tabs.addEventListener("keydown", (event) => {
  const all = [...tabs.children];
  const now = all.indexOf(document.activeElement);
  const next = { ArrowRight: now + 1, ArrowLeft: now - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  all[next % all.length].focus();
  select(all[next % all.length]);
});

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(document.getElementById("key").value);
  event.target.hidden = true;
  document.getElementById("text-form").requestSubmit();
});

async function start() {
  const facts = await get("/health");
  const layers = `${facts.layers} layers of ${facts.dim}`;
  document.getElementById("model").textContent = `${facts.model}, ${layers}`;
  addTab("words", "Words", document.getElementById("panel-words"));
  for (const [number, { name, task }] of facts.tasks.entries()) {
    const panel = taskPanel(number, name, task);
    document.querySelector("main").append(panel);
    addTab(`task-${number}`, name, panel);
  }
  tabs.hidden = facts.tasks.length === 0;
  select(tabs.firstElementChild);
  startWords(facts);
}

start().catch((error) => say(document.getElementById("status"), error));
