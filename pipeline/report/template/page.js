// Charts: the values of a point appear below its panel, arrow keys move between points, and the legend hides lines.
// Switches select the metric, judge, picture and settings to show. Each thumbnail is embedded once and inserted where it
// is shown. Without this script the page shows the first metric and every picture.
"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const picked = (name) => document.querySelector(`[data-switch="${name}"] input:checked`)?.value;

for (const panel of all(".panel")) {
  const readout = panel.querySelector(".readout");
  const show = (event) => {
    const point = event.target.closest(".point");
    readout.textContent = point ? point.getAttribute("aria-label") : "";
  };
  panel.addEventListener("mouseover", show);
  panel.addEventListener("focusin", show);
  panel.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const points = all("g:not(.off) > .point", panel);
    if (!step || !points.length) return;
    event.preventDefault();
    const at = points.indexOf(document.activeElement);
    points[at < 0 ? (step > 0 ? 0 : points.length - 1) : (at + step + points.length) % points.length].focus();
  });
}

for (const button of all(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", shown);
    for (const line of all(`g[data-line="${button.dataset.line}"]`, button.closest("figure"))) line.classList.toggle("off", !shown);
  });
}

const pictures = JSON.parse(document.getElementById("thumbnails").textContent);
function fill(within) {
  for (const place of all(".thumb[data-row]", within)) {
    const picture = pictures[place.dataset.row];
    if (!picture || place.querySelector("img")) continue;
    const image = new Image();
    image.src = picture.src;
    // A radio button of the picker has its own label; elsewhere the alternative text is an annotator's caption.
    image.alt = place.closest(".picker") ? "" : ("right" in place.dataset ? "the right image: " : "") + (picture.text || "no description");
    place.title = picture.text;
    place.replaceChildren(image);
  }
}

function choose(name) {
  if (name === "metric") for (const figure of all("[data-metric]")) figure.hidden = figure.dataset.metric !== picked(name);
  if (name === "judge") {
    const judge = picked(name);
    for (const panel of all("#curve .panel")) panel.hidden = judge !== "all" && panel.dataset.judge !== judge;
    for (const panels of all("#curve .panels")) panels.classList.toggle("one", judge !== "all");
  }
  if (name === "picture" || name === "view") {
    const view = picked("view");
    for (const words of all(".view")) words.hidden = words.dataset.view !== view;
    for (const article of all("article")) {
      article.hidden = article.dataset.picture !== picked("picture");
      if (article.hidden) continue;
      fill(article);
      for (const row of all("tr[data-views]", article)) row.hidden = !row.dataset.views.split(" ").includes(view);
    }
  }
}

for (const control of all("[data-switch]")) {
  control.addEventListener("change", () => {
    choose(control.dataset.switch);
    const article = document.querySelector("article:not([hidden])");
    if (!article || !control.closest("#gallery")) return;
    const rows = all("tr[data-views]", article).filter((row) => !row.hidden).length;
    const person = article.querySelector("img").alt;
    document.getElementById("announce").textContent =
      `${article.querySelector("h3").textContent}, ${person}: ${rows} caption${rows === 1 ? "" : "s"} below.`;
  });
  choose(control.dataset.switch); // on return to the page, a browser may restore an earlier selection
}
for (const place of all("#first, #along, .picker")) fill(place);
// On narrow screens rows are blocks, and some browsers then drop the roles of a table.
const roles = { "table.said": "table", ".said tr": "row", ".said td": "cell", ".said tbody th": "rowheader", ".said thead th": "columnheader" };
for (const [selector, role] of Object.entries(roles)) for (const element of all(selector)) element.setAttribute("role", role);
document.documentElement.classList.add("js");
