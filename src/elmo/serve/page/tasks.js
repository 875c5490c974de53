// A panel for a trained task: a form for what it reads, and its answers drawn.

import { Refused, element, fill, post, say } from "./api.js";
import { roles } from "./roles.js";

const SENTENCES = "Anna met Peter in Paris.\nThe baker sold warm bread in Oslo.";
const PARAGRAPH = "The old mill, built in 1712, stands on the river. Ada Flint bought it and opened a museum.";
const LINES = [["text", "Sentences, one per line", "textarea", SENTENCES]];
const FORMS = {
  squad: [
    ["context", "Paragraph", "textarea", PARAGRAPH],
    ["question", "Question", "text", "When was the mill built?"],
  ],
  snli: [
    ["premise", "Premise", "text", "A man plays the guitar on a stage."],
    ["hypothesis", "Hypothesis", "text", "A person makes music."],
  ],
  coref: [["text", "Text", "textarea", "Anna saw Rex. She fed it. The dog was happy."]],
  sentences: [
    ["sentence1", "First sentence", "text", "A man plays the guitar on a stage."],
    ["sentence2", "Second sentence", "text", "A person makes music."],
  ],
};
const DRAW = { ner: entities, srl: roles, coref: chains, squad: marked, snli: label, sst: label, sentences: similarity };

export function taskPanel(number, name, task) {
  const fields = FORMS[task] ?? LINES;
  const id = (field) => `task-${number}-${field}`;
  const form = element("form", {});
  for (const [field, title, kind, example] of fields) {
    const area = kind === "textarea";
    const input = element(area ? "textarea" : "input", { id: id(field), ...(area ? { rows: 3 } : { type: "text" }) });
    input.value = example;
    form.append(element("label", { for: id(field) }, title), input);
  }
  const status = element("p", { role: "status", "aria-live": "polite" });
  form.append(element("div", { class: "line" }, element("button", { class: "primary" }, "Predict"), status));
  const answers = element("div", { class: "answers" });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = Object.fromEntries(fields.map(([field]) => [field, form.querySelector(`#${id(field)}`).value]));
    const items = fields === LINES ? values.text.split("\n").filter((line) => line.trim()) : [values];
    if (!items.length) return say(status, new Refused(0, "Write a sentence first."));
    say(status, "Computing…");
    fill(answers, status, async () => {
      const found = await post(`/predict/${encodeURIComponent(name)}`, { items });
      say(status, `${found.answers.length} answered.`);
      return found.answers.flatMap((answer) => (DRAW[task] ?? plain)(answer, values));
    });
  });
  const panel = { id: `panel-${number}`, role: "tabpanel", "aria-labelledby": `tab-task-${number}`, hidden: "" };
  return element("section", panel, form, answers);
}

// Entities: highlighted pieces with their type.
function entities({ tokens, entities }) {
  const types = [...new Set(entities.map(({ type }) => type))].sort();
  const shown = element("p", { class: "answer" });
  let place = 0;
  for (const { type, start, end } of entities) {
    shown.append(tokens.slice(place, start).join(" "), " ");
    const entity = element("span", { class: "entity" }, tokens.slice(start, end).join(" "), element("b", {}, type));
    entity.style.setProperty("--hue", hue(types.indexOf(type)));
    shown.append(entity, " ");
    place = end;
  }
  shown.append(tokens.slice(place).join(" "));
  return [shown];
}

// Coreference: mentions in the colour of their chain, with its number; one may be inside another.
function chains({ sentences, clusters }) {
  const tokens = sentences.flat();
  const mentions = clusters.flatMap((cluster, chain) => cluster.map(({ start, end }) => ({ start, end, chain })));
  mentions.sort((a, b) => a.start - b.start || b.end - a.end);
  const shown = element("p", { class: "answer" });
  const open = [{ node: shown, end: tokens.length }];
  tokens.forEach((token, place) => {
    while (mentions.length && mentions[0].start === place) {
      const { chain, end } = mentions.shift();
      const node = element("span", { class: "mention" });
      node.style.setProperty("--hue", hue(chain));
      open.at(-1).node.append(node);
      open.push({ node, end: Math.min(end, open.at(-1).end), chain });
    }
    open.at(-1).node.append(token);
    while (open.length > 1 && open.at(-1).end === place + 1) {
      const { node, chain } = open.pop();
      node.append(element("sub", {}, element("span", { class: "sr-only" }, "chain "), String(chain + 1)));
    }
    open.at(-1).node.append(" ");
  });
  const count = element("p", { class: "hint" }, `${clusters.length} chains of mentions.`);
  return [shown, count];
}

// A question's answer, marked in its paragraph.
function marked({ answer, start, end, score }, { context }) {
  const characters = [...context]; // offsets count characters, not UTF-16 units
  const piece = (from, to) => characters.slice(from, to).join("");
  const text = element("p", { class: "answer" }, piece(0, start), element("mark", {}, piece(start, end)), piece(end));
  return [element("p", { class: "hint" }, `Answer: ${answer || "none"} (probability ${score})`), text];
}

function label({ label, sentiment }) {
  return [element("p", { class: "answer" }, element("mark", {}, sentiment ?? label))];
}

// Two sentences: the cosine of their vectors.
function similarity({ similarity }) {
  return [element("p", { class: "answer" }, "Similarity ", element("mark", {}, similarity.toFixed(3)))];
}

// A task of somebody's own: its answer as it is.
function plain(answer) {
  return [element("pre", { class: "answer" }, JSON.stringify(answer, null, 1))];
}

const hue = (number) => (195 + number * 137) % 360; // the golden angle: neighbours differ
