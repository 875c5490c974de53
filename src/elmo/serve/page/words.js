// The words of some sentences: similarity per layer and in a mix, surprisal, substitutes, nearest uses.

import { Refused, element, fill, post, say } from "./api.js";
import { cosine, decode, length, mixed, softmax } from "./vectors.js";

const MOST_BITS = 16; // of surprisal, where the colour is full
const by = (id) => document.getElementById(id);
const status = by("status");

let facts; // of the server
let words = []; // { token, sentence, index, layers: [Float32Array], button }
let sentences = []; // token lists
let chosen = null;
let turn = 0; // of requests for sentences: an answer that a newer request has overtaken is dropped

export function startWords(found) {
  facts = found;
  addSliders();
  by("text-form").addEventListener("submit", (event) => {
    event.preventDefault();
    embed();
  });
  by("text-form").querySelector("button").disabled = false;
  by("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) by("text-form").requestSubmit();
  });
  embed();
}

async function embed() {
  const lines = by("text").value.split("\n").filter((line) => line.trim());
  if (!lines.length) return say(status, new Refused(0, "Write a sentence first."));
  const own = ++turn;
  say(status, "Computing…");
  try {
    const asked = [post("/embed", { sentences: lines, encoding: "base64" })];
    if (facts.language_model) asked.push(post("/score", { sentences: lines }));
    const [embedded, scored] = await Promise.all(asked);
    if (own !== turn) return;
    show(embedded.sentences, scored?.sentences);
    say(status, `${words.length} words in ${sentences.length} sentences.`);
  } catch (error) {
    if (own === turn) say(status, error);
  }
}

function show(embedded, scored) {
  words = [];
  sentences = embedded.map(({ tokens }) => tokens);
  chosen = null;
  for (const section of document.querySelectorAll(".chosen")) section.hidden = true;
  by("heat-legend").hidden = !scored;
  const lists = embedded.map(({ tokens, shape, vectors }, sentence) => {
    const layers = decode(vectors, shape);
    const list = element("ul", { class: "sentence", "aria-label": `Sentence ${sentence + 1}` });
    list.append(element("li", { class: "number", "aria-hidden": "true" }, String(sentence + 1)));
    tokens.forEach((token, index) => {
      const word = { token, sentence, index, layers: layers.map((layer) => layer[index]) };
      word.button = element("button", { class: "word", type: "button", "aria-pressed": "false" }, token);
      word.button.addEventListener("click", () => choose(word));
      words.push(word);
      const item = element("li", {}, word.button);
      if (scored) item.append(...heat(scored[sentence], index));
      list.append(item);
    });
    return list;
  });
  by("sentences").replaceChildren(...lists);
  showMix();
}

// Two coloured lines below a word, and the same in words for screen readers.
function heat(scores, index) {
  const sides = [["before", scores.forward], ["after", scores.backward]].filter(([, values]) => values !== null);
  const texts = [];
  const lines = sides.map(([side, values]) => {
    const bits = -values[index] / Math.LN2;
    texts.push(`${bits.toFixed(1)} bits given the words ${side} it`);
    const line = element("span", { class: "heat", "aria-hidden": "true" });
    line.style.setProperty("--bits", Math.min(bits / MOST_BITS, 1).toFixed(3));
    return line;
  });
  const text = (scores.known[index] ? "" : "not in the vocabulary; ") + texts.join(", ");
  lines.forEach((line) => (line.title = text));
  return [...lines, element("span", { class: "sr-only" }, `Surprisal: ${text}`)];
}

function choose(word) {
  chosen?.button.setAttribute("aria-pressed", "false");
  chosen = word;
  word.button.setAttribute("aria-pressed", "true");
  for (const section of document.querySelectorAll(".chosen")) {
    section.hidden = section.classList.contains("language-model") && !facts.language_model;
  }
  by("similar-title").textContent = `Similarity to “${word.token}”, sentence ${word.sentence + 1}`;
  showMix();
  if (facts.language_model) showSubstitutes();
}

// Sliders: a raw weight per layer, and gamma.
function addSliders() {
  const rows = Array.from({ length: facts.layers }, (_, layer) => slider(`w${layer}`, `Layer ${layer}`, -4, 4, 0));
  rows.push(slider("gamma", "γ", 0.1, 4, 1));
  by("sliders").replaceChildren(...rows);
}

function slider(id, label, min, max, value) {
  const input = element("input", { id, type: "range", min, max, step: 0.1, value });
  input.addEventListener("input", showMix);
  const output = element("output", { for: id, id: `${id}-out` });
  return element("div", { class: "slider" }, element("label", { for: id }, label), input, output);
}

function mix() {
  const raw = Array.from({ length: facts.layers }, (_, layer) => Number(by(`w${layer}`).value));
  return { raw, weights: softmax(raw), gamma: Number(by("gamma").value) };
}

let waiting;
function showMix() {
  const { raw, weights, gamma } = mix();
  weights.forEach((weight, layer) => {
    const text = `s = ${weight.toFixed(3)}`;
    by(`w${layer}-out`).textContent = text;
    by(`w${layer}`).setAttribute("aria-valuetext", `weight ${raw[layer].toFixed(1)}, ${text}`);
  });
  by("gamma-out").textContent = `γ = ${gamma.toFixed(1)}`;
  by("mix-length").textContent = "γ scales every vector alike, so it changes their length, not their similarity.";
  if (chosen === null) return;
  const own = mixed(chosen.layers, weights, gamma);
  by("mix-length").textContent += ` Length of “${chosen.token}” in the mix: ${length(own).toFixed(2)}.`;
  showSimilar(own, weights, gamma);
  clearTimeout(waiting);
  waiting = setTimeout(showUses, 150);
}

function showSimilar(own, weights, gamma) {
  const rows = [];
  for (const word of words) {
    const inMix = cosine(own, mixed(word.layers, weights, gamma));
    const tint = word === chosen ? 0 : shade(inMix);
    word.button.style.setProperty("--similar", tint);
    const byLayer = word.layers.map((layer, j) => cosine(chosen.layers[j], layer));
    if (word !== chosen) rows.push({ word, values: [inMix, ...byLayer] });
  }
  rows.sort((a, b) => b.values[0] - a.values[0]);
  const heads = ["Word", "Mix", ...weights.map((_, layer) => `Layer ${layer}`)];
  const head = element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text))));
  const body = element("tbody", {}, ...rows.map(({ word, values }) => {
    const name = element("th", { scope: "row" }, word.token, " ", element("small", {}, String(word.sentence + 1)));
    return element("tr", {}, name, ...values.map((value) => {
      const cell = element("td", {}, value.toFixed(2));
      cell.style.setProperty("--similar", shade(value));
      return cell;
    }));
  }));
  by("similar").replaceChildren(head, body);
}

const shade = (similarity) => (Math.max(0, similarity) ** 2 * 0.55).toFixed(3);

function showSubstitutes() {
  fill(by("substitutes"), status, async () => {
    const asked = { sentence: sentences[chosen.sentence], index: chosen.index, n: 10 };
    const { substitutes, forward, backward } = await post("/substitutes", asked);
    const lists = [["Forward", "reads the words before", forward]];
    if (backward !== null) {
      lists.unshift(["Both", "of them together", substitutes]);
      lists.push(["Backward", "reads the words after", backward]);
    }
    return lists.map(([name, says, found], number) => {
      const title = element("h3", { id: `substitutes-${number}` }, name, " ", element("small", {}, says));
      const items = found.map(({ word, probability }) => bar([word], percent(probability), probability));
      return element("div", {}, title, element("ol", { class: "bars", "aria-labelledby": title.id }, ...items));
    });
  });
}

const percent = (probability) => `${(100 * probability).toFixed(1)} %`;

function showUses() {
  fill(by("uses"), status, async () => {
    const asked = { sentence: sentences[chosen.sentence], index: chosen.index, weights: mix().weights, n: 8 };
    const { uses } = await post("/uses", asked);
    return uses.map(({ tokens, index, similarity }) => {
      const [before, after] = [tokens.slice(0, index).join(" "), tokens.slice(index + 1).join(" ")];
      return bar([before, " ", element("mark", {}, tokens[index]), " ", after], similarity.toFixed(2), similarity);
    });
  });
}

function bar(text, value, width) {
  const line = element("span", { class: "bar", "aria-hidden": "true" });
  line.style.setProperty("--width", `${(100 * Math.max(0, Math.min(1, width))).toFixed(1)}%`);
  return element("li", {}, element("span", {}, ...text), element("span", { class: "value" }, value), line);
}
