// Charts: the values of a point appear below its panel, arrow keys move between points, and the legend hides lines.
// Switches select the metric, judge, picture and settings to show. Each thumbnail is embedded once and inserted where it
// is shown. Without this script the page shows the first metric and every picture.
"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const selectedValue = (name) => document.querySelector(`[data-switch="${name}"] input:checked`)?.value;

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
    const index = points.indexOf(document.activeElement);
    points[index < 0 ? (step > 0 ? 0 : points.length - 1) : (index + step + points.length) % points.length].focus();
  });
}

for (const button of all(".legend button")) {
  button.addEventListener("click", () => {
    const visible = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", visible);
    for (const line of all(`g[data-line="${button.dataset.line}"]`, button.closest("figure"))) line.classList.toggle("off", !visible);
  });
}

const thumbnails = JSON.parse(document.getElementById("thumbnails").textContent);
function insertThumbnails(within) {
  for (const thumb of all(".thumb[data-row]", within)) {
    const picture = thumbnails[thumb.dataset.row];
    if (!picture || thumb.querySelector("img")) continue;
    const image = new Image();
    image.src = picture.src;
    // A radio button of the picker has its own label; elsewhere the alternative text is an annotator's caption.
    image.alt = thumb.closest(".picker") ? "" : ("right" in thumb.dataset ? "the right image: " : "") + (picture.text || "no description");
    thumb.title = picture.text;
    thumb.replaceChildren(image);
  }
}

function applySwitch(name) {
  if (name === "metric") for (const figure of all("[data-metric]")) figure.hidden = figure.dataset.metric !== selectedValue(name);
  if (name === "judge") {
    const judge = selectedValue(name);
    for (const panel of all("#curve .panel")) panel.hidden = judge !== "all" && panel.dataset.judge !== judge;
    for (const panels of all("#curve .panels")) panels.classList.toggle("one", judge !== "all");
  }
  if (name === "picture" || name === "view") {
    const view = selectedValue("view");
    for (const text of all(".view")) text.hidden = text.dataset.view !== view;
    for (const article of all("article")) {
      article.hidden = article.dataset.picture !== selectedValue("picture");
      if (article.hidden) continue;
      insertThumbnails(article);
      for (const row of all("tr[data-views]", article)) row.hidden = !row.dataset.views.split(" ").includes(view);
    }
  }
}

for (const control of all("[data-switch]")) {
  control.addEventListener("change", () => {
    applySwitch(control.dataset.switch);
    const article = document.querySelector("article:not([hidden])");
    if (!article || !control.closest("#gallery")) return;
    const rows = all("tr[data-views]", article).filter((row) => !row.hidden).length;
    const description = article.querySelector("img").alt;
    document.getElementById("announce").textContent =
      `${article.querySelector("h3").textContent}, ${description}: ${rows} caption${rows === 1 ? "" : "s"} below.`;
  });
  applySwitch(control.dataset.switch); // on return to the page, a browser may restore an earlier selection
}
for (const thumb of all("#first, #along, .picker")) insertThumbnails(thumb);
// On narrow screens rows are blocks, and some browsers then drop the roles of a table.
const roles = { "table.captions": "table", ".captions tr": "row", ".captions td": "cell", ".captions tbody th": "rowheader", ".captions thead th": "columnheader" };
for (const [selector, role] of Object.entries(roles)) for (const element of all(selector)) element.setAttribute("role", role);
document.documentElement.classList.add("js");
