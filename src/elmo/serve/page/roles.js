// Semantic roles: for each predicate the sentence, with an arc to every argument.

import { element } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";
const STEP = 26; // height between two levels of arcs, in pixels

export function roles({ tokens, propositions }) {
  if (!propositions.length) {
    const none = element("p", { class: "hint" }, "No predicate found.");
    return [element("p", { class: "answer" }, tokens.join(" ")), none];
  }
  return propositions.map((proposition) => {
    const words = tokens.map((token, place) => element("span", { class: kind(place, proposition) }, token));
    const svg = made("svg", { "aria-hidden": "true" });
    const line = element("div", { class: "tokens" }, ...words);
    const said = proposition.arguments.map(({ role, text }) => `${role}: ${text}`).join("; ");
    const spoken = element("span", { class: "sr-only" }, `Predicate ${proposition.word}. ${said}`);
    const group = { class: "answer roles", tabindex: "0", role: "group", "aria-label": `Roles of ${proposition.word}` };
    const shown = element("div", group, element("div", { class: "arcs" }, svg, line), spoken);
    requestAnimationFrame(() => draw(svg, words, proposition)); // when the words have their places
    return shown;
  });
}

function kind(place, { predicate, arguments: spans }) {
  if (place === predicate) return "predicate";
  return spans.some(({ start, end }) => start <= place && place < end) ? "argument" : "";
}

// Every arc has a height of its own, the shortest the lowest, so that no label covers another.
function draw(svg, words, { predicate, arguments: spans }) {
  const left = svg.getBoundingClientRect().left - svg.parentNode.getBoundingClientRect().left;
  const middle = (first, last) =>
    (words[first].offsetLeft + words[last].offsetLeft + words[last].offsetWidth) / 2 - left;
  const from = middle(predicate, predicate);
  const arcs = spans.map(({ role, start, end }) => ({ role, to: middle(start, end - 1) }));
  arcs.sort((a, b) => Math.abs(a.to - from) - Math.abs(b.to - from));
  const height = (arcs.length + 1) * STEP;
  svg.setAttribute("width", svg.parentNode.clientWidth);
  svg.setAttribute("height", height);
  arcs.forEach(({ role, to }, level) => {
    const top = height - (level + 1) * STEP;
    const half = (from + to) / 2;
    const curve = `M${from},${height} C${from},${top} ${from},${top} ${half},${top} S${to},${top} ${to},${height}`;
    svg.append(made("path", { d: curve }), made("text", { x: half, y: top - 4 }, role));
  });
}

function made(name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) node.setAttribute(attribute, value);
  node.textContent = text;
  return node;
}
