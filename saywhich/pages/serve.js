"use strict";
// The page of `saywhich serve`: photos stay in this window; requests carry them, and the server keeps nothing.
const $ = (id) => document.getElementById(id);
const MODELS = Number(document.body.dataset.models);
const MAX_PHOTOS = Number(document.body.dataset.maxPhotos), SAMPLES = Number(document.body.dataset.samples);
const MAX_SIDE = 1280; // pixels of the longer side of a sent photo
const CAPTION_OPTIONS = { // options of a caption request, by the page's choice
  likely: {}, similar: { score: "similarity" }, apart: { among: true }, words: { among: true, pragmatic: 1 },
};
let photos = []; // {name, url, data}
let captions = []; // captions of each photo by each model; empty until the response arrives
let captionRequest = new AbortController(); // aborts the latest caption request, so that the server ends its work on it
let round = null;
let roundRequest = new AbortController();
const rounds = []; // saved rounds have the form of a study's answers
const SHEET = Math.random().toString(36).slice(2);

const makeElement = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const showStatus = (text) => { $("status").textContent = text; };

async function post(address, body, signal) {
  const response = await fetch(address, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  });
  const content = await response.json();
  if (!response.ok) throw new Error(typeof content.detail === "string" ? content.detail : "the request was refused");
  return content;
}

// Return a photo redrawn with at most 1,280 pixels a side: the location and time in the file do not leave the window.
async function readPhoto(file, name) {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, MAX_SIDE / Math.max(image.width, image.height));
  const canvas = makeElement("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const small = canvas.width * canvas.height < 400_000;
  const url = small ? canvas.toDataURL("image/png") : canvas.toDataURL("image/jpeg", 0.92);
  return { name, url, data: url.slice(url.indexOf(",") + 1) };
}

async function addPhotos(files) {
  const problems = [];
  for (const file of files) {
    if (photos.length >= MAX_PHOTOS) { problems.push(`at most ${MAX_PHOTOS} photos`); break; }
    try { photos.push(await readPhoto(file, file.name)); } catch { problems.push(`${file.name}: not a photo`); }
  }
  await refresh(problems);
}

async function refresh(problems = []) {
  for (const id of ["captions", "search", "clear"]) $(id).hidden = !photos.length;
  $("play").hidden = photos.length < 2;
  $("photos").replaceChildren();
  $("found").replaceChildren();
  captionRequest.abort();
  captions = [];
  if (!photos.length) { endRound(); showStatus(problems.join("; ")); return; }
  captionRequest = new AbortController();
  const signal = captionRequest.signal;
  showStatus(`${photos.length} photos: generating captions …`);
  try {
    const response = await post("caption", { photos: photos.map((p) => p.data), ...CAPTION_OPTIONS[$("caption-choice").value] }, signal);
    if (signal.aborted) return;
    captions = response.photos;
    $("photos").replaceChildren(...captions.map(makeArticle));
    showStatus([`${photos.length} photos, each captioned by ${MODELS} model${MODELS === 1 ? "" : "s"}.`, ...problems].join(" "));
  } catch (error) { if (!signal.aborted) showStatus(error.message); }
}

function makeArticle(captions, number) {
  const overlay = makeElement("div", { className: "attention" });
  overlay.setAttribute("aria-hidden", "true");
  const figure = makeElement("figure", {}, makeElement("img", { src: photos[number].url, alt: photos[number].name }), overlay);
  const texts = makeElement("div", { className: "texts" }, ...captions.map((caption) => makeCaption(caption, number, overlay)));
  return makeElement("article", {}, figure, texts);
}

function makeCaption(caption, number, overlay) {
  const text = makeElement("p", { className: "text" });
  text.style.margin = "0";
  caption.words.forEach((word, i) => {
    if (!caption.attention) { text.append(word, " "); return; }
    const button = makeElement("button", { type: "button", className: "word", textContent: word });
    const show = () => drawAttention(overlay, caption, i), hide = () => overlay.replaceChildren();
    for (const [event, act] of [["mouseenter", show], ["focus", show], ["mouseleave", hide], ["blur", hide]]) button.addEventListener(event, act);
    text.append(button, " ");
  });
  const first = caption.retrieved.slice(0, 5).map((found) => makeElement("li", { className: found === number && !caption.unlike ? "right" : "" },
    makeElement("img", { src: photos[found].url, alt: (found === number ? "the right photo: " : "") + photos[found].name })));
  const rank = makeElement("li", { textContent: `rank ${caption.rank} of ${photos.length}; ranked first:` });
  const warning = caption.unlike ? [makeElement("p", { className: "unlike", textContent: "This photo is unlike the model's training images: caption and ranks are unreliable." })] : [];
  return makeElement("div", { className: "caption" }, makeElement("h3", { textContent: caption.model }), text, ...warning, makeElement("ul", { className: "thumbs" }, rank, ...first));
}

function drawAttention(overlay, caption, word) {
  const shares = caption.attention[word], largest = Math.max(...shares), side = Math.round(Math.sqrt(shares.length));
  overlay.classList.toggle("boxes", Boolean(caption.boxes));
  overlay.style.gridTemplate = caption.boxes ? "" : `repeat(${side}, 1fr) / repeat(${side}, 1fr)`;
  overlay.replaceChildren(...shares.map((share, k) => {
    const cell = makeElement("i");
    cell.style.opacity = String(0.85 * share / largest);
    if (caption.boxes) {
      const [left, top, right, bottom] = caption.boxes[k].map((x) => 100 * x);
      Object.assign(cell.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
    }
    return cell;
  }));
}

async function search(event) {
  event.preventDefault();
  const { signal } = captionRequest; // aborted when the photos change
  try {
    const response = await post("find", { text: $("text").value, photos: photos.map((p) => p.data), model: $("listener").value });
    if (signal.aborted) return;
    $("found").replaceChildren(...response.found.slice(0, 10).map(({ photo, score }) =>
      makeElement("li", {}, makeElement("img", { src: photos[photo].url, alt: photos[photo].name }), `${photos[photo].name} · ${score.toFixed(2)}`)));
    const warning = response.unlike.length ? ` ${response.unlike.length} of ${photos.length} photos are unlike the model's training images: scores are unreliable.` : "";
    showStatus((response.unknown.length ? `Words that are not in the vocabulary: ${response.unknown.join(", ")}.` : `The best is ${photos[response.found[0].photo].name}.`) + warning);
  } catch (error) { if (!signal.aborted) showStatus(error.message); }
}

const shuffle = (list) => list.map((x) => [Math.random(), x]).sort((a, b) => a[0] - b[0]).map(([, x]) => x);

// Return ten photos in random order: a random photo, and the photos that the listener ranks highest by its caption.
function chooseLookAlikes(model) {
  const [first, ...others] = shuffle([...photos.keys()]);
  const caption = captions[first]?.find((each) => each.model === model);
  const ranked = caption ? caption.retrieved.filter((number) => number !== first) : others;
  return shuffle([first, ...ranked.slice(0, 9)]).map((number) => photos[number]);
}

// End the round without an answer, and abort the request for the next one.
function endRound() {
  roundRequest.abort();
  round = null;
  $("choices").replaceChildren();
  $("shown-caption").textContent = "";
}

async function startRound() {
  endRound();
  roundRequest = new AbortController();
  const { signal } = roundRequest;
  $("shown-caption").textContent = "Generating a caption …";
  const model = $("speaker").value, shown = chooseLookAlikes(model), target = Math.floor(Math.random() * shown.length);
  try {
    const data = shown.map((p) => p.data);
    const [caption] = (await post("caption", { photos: data, models: [model], among: true }, signal)).photos[target];
    if (signal.aborted) return;
    const names = shown.map((p, i) => `${i + 1} ${p.name}`); // two photos may have one name
    round = { study: "play", sheet: SHEET, task: "play", rater: SHEET, question: String(rounds.length + 1), asked: caption.caption,
      shown: names, right: names[target], listener: names[caption.retrieved[0]], model, began: performance.now() };
    $("shown-caption").textContent = `“${caption.caption}”`;
    $("choices").replaceChildren(...shown.map((photo, i) => {
      const button = makeElement("button", { type: "button", onclick: () => choose(i) }, makeElement("img", { src: photo.url, alt: "" }), String(i + 1));
      button.setAttribute("aria-label", `photo ${i + 1}, ${photo.name}`);
      return button;
    }));
    $("choices").firstElementChild.focus();
  } catch (error) { if (!signal.aborted) $("shown-caption").textContent = error.message; }
}

function choose(answer) {
  if (!round || "chosen" in round || answer >= round.shown.length) return;
  round.chosen = round.shown[answer];
  round.seconds = Math.round((performance.now() - round.began) / 100) / 10;
  rounds.push(round);
  const buttons = [...$("choices").children];
  const target = round.shown.indexOf(round.right);
  buttons[target].classList.add("right");
  if (answer !== target) buttons[answer].classList.add("wrong");
  const countRight = (player) => rounds.filter((each) => each[player] === each.right).length;
  const result = answer === target ? "Right." : `No, it was photo ${target + 1}.`;
  const listener = round.listener === round.right ? "The listener ranked it first." : "The listener did not rank it first.";
  $("score").textContent = `${result} ${listener} You: ${countRight("chosen")} of ${rounds.length}; the listener: ${countRight("listener")} of ${rounds.length}.`;
  $("save").hidden = false;
  $("next").focus();
}

function saveRounds() {
  const lines = rounds.map(({ began, ...each }) => JSON.stringify(each) + "\n");
  const url = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  makeElement("a", { href: url, download: "rounds.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function loadSamples() {
  const start = 10 * Math.floor(Math.random() * Math.max(1, Math.floor(SAMPLES / 10))); // ten photos of one group
  const numbers = [...Array(SAMPLES).keys()].slice(start, start + 10);
  const files = await Promise.all(numbers.map(async (n) => [await (await fetch(`samples/${n}`)).blob(), `sample ${n + 1}`]));
  photos = await Promise.all(files.map(([file, name]) => readPhoto(file, name)));
  await refresh();
}

$("files").addEventListener("change", (event) => { addPhotos(event.target.files); });
$("caption-choice").addEventListener("change", () => refresh());
$("clear").addEventListener("click", () => { photos = []; $("files").value = ""; refresh(); $("files").focus(); });
$("take-samples")?.addEventListener("click", loadSamples);
$("search").querySelector("form").addEventListener("submit", search);
$("next").addEventListener("click", startRound);
$("save").addEventListener("click", saveRounds);
for (const event of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(event, (e) => {
  e.preventDefault();
  $("drop").classList.toggle("over", event === "dragover");
  if (event === "drop") addPhotos(e.dataTransfer.files);
});
document.addEventListener("keydown", (event) => {
  if (!/^[0-9]$/.test(event.key) || event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  choose(event.key === "0" ? 9 : Number(event.key) - 1);
});
