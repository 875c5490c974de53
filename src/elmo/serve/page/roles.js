// Semantic roles: for each predicate the sentence, with an arc to every argument.

import { element } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";
const STEP = 26; // height between two levels of arcs, in pixels

export function roles({ tokens, propositions }) {
  if (!propositions.length) return [element("p", { class: "answer" }, tokens.join(" ")), element("p", { class: "hint" }, "No predicate found.")];
  return propositions.map((proposition) => {
    const words = tokens.map((token, place) => element("span", { class: kind(place, proposition) }, token));
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("aria-hidden", "true");
    const line = element("div", { class: "tokens" }, ...words);
    const said = proposition.arguments.map(({ role, text }) => `${role}: ${text}`).join("; ");
    const spoken = element("span", { class: "sr-only" }, `Predicate ${proposition.word}. ${said}`);
    const shown = element("div", { class: "answer roles", tabindex: "0", role: "group", "aria-label": `Roles of ${proposition.word}` }, element("div", { class: "arcs" }, svg, line), spoken);
    requestAnimationFrame(() => draw(svg, words, proposition)); // when the words have their places
    return shown;
  });
}

function kind(place, { predicate, arguments: spans }) {
  if (place === predicate) return "predicate";
  return spans.some(({ start, end }) => start <= place && place < end) ? "argument" : "";
}

function draw(svg, words, { predicate, arguments: spans }) {
  const middle = (first, last) => (words[first].offsetLeft + words[last].offsetLeft + words[last].offsetWidth) / 2 - svg.parentNode.firstChild.getBoundingClientRect().left + svg.parentNode.getBoundingClientRect().left;
  const from = middle(predicate, predicate);
  const sorted = spans.map(({ role, start, end }) => ({ role, to: middle(start, end - 1) }))
    .sort((a, b) => Math.abs(a.to - from) - Math.abs(b.to - from));
  const levels = { left: 0, right: 0 };
  const height = (Math.max(0, ...["left", "right"].map((side) => sorted.filter(({ to }) => (to < from) === (side === "left")).length)) + 1) * STEP;
  svg.setAttribute("width", svg.parentNode.clientWidth);
  svg.setAttribute("height", height);
  for (const { role, to } of sorted) {
    const top = height - 12 - STEP * ++levels[to < from ? "left" : "right"] + 10;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${from},${height} C${from},${top} ${from},${top} ${(from + to) / 2},${top} S${to},${top} ${to},${height}`);
    const text = document.createElementNS(SVG, "text");
    text.setAttribute("x", (from + to) / 2);
    text.setAttribute("y", top - 4);
    text.textContent = role;
    svg.append(path, text);
  }
}
