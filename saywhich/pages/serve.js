"use strict";
// The page of `saywhich serve`: photos stay in this window; requests carry them, and the server keeps nothing.
const $ = (id) => document.getElementById(id);
const MODELS = Number(document.body.dataset.models);
const MOST = Number(document.body.dataset.most), SAMPLES = Number(document.body.dataset.samples);
const LARGEST = 1280; // pixels of the longer side of what is sent
const WANTED = { // by the page's choice, what a request for captions asks
  likely: {}, similar: { score: "similarity" }, apart: { among: true }, words: { among: true, pragmatic: 1 },
};
let photos = []; // {name, url, data}
let captions = []; // of each photo by each model; empty until they are there
let asked = new AbortController(); // aborts the last request for captions: the server ends its work on an older one
let round = null;
const rounds = []; // as they are saved: in the form of a study's answers
const SHEET = Math.random().toString(36).slice(2);

const made = (tag, properties = {}, ...inside) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...inside);
  return node;
};
const showStatus = (text) => { $("status").textContent = text; };

async function post(address, body, signal) {
  const answer = await fetch(address, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(typeof content.detail === "string" ? content.detail : "the request was refused");
  return content;
}

// Return a photo redrawn with at most 1,280 pixels a side: the place and time in the file do not leave the window.
async function read(file, name) {
  const image = await createImageBitmap(file);
  const share = Math.min(1, LARGEST / Math.max(image.width, image.height));
  const canvas = made("canvas", { width: Math.round(image.width * share), height: Math.round(image.height * share) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const small = canvas.width * canvas.height < 400_000;
  const url = small ? canvas.toDataURL("image/png") : canvas.toDataURL("image/jpeg", 0.92);
  return { name, url, data: url.slice(url.indexOf(",") + 1) };
}

async function add(files) {
  const wrong = [];
  for (const file of files) {
    if (photos.length >= MOST) { wrong.push(`at most ${MOST} photos`); break; }
    try { photos.push(await read(file, file.name)); } catch { wrong.push(`${file.name}: not a photo`); }
  }
  await refresh(wrong);
}

async function refresh(wrong = []) {
  for (const id of ["captions", "search", "clear"]) $(id).hidden = !photos.length;
  $("play").hidden = photos.length < 2;
  $("photos").replaceChildren();
  $("found").replaceChildren();
  if (!photos.length) { showStatus(wrong.join("; ")); return; }
  asked.abort();
  captions = [];
  asked = new AbortController();
  const mine = asked.signal;
  showStatus(`${photos.length} photos: generating captions …`);
  try {
    const answer = await post("caption", { photos: photos.map((p) => p.data), ...WANTED[$("wanted").value] }, mine);
    if (mine.aborted) return;
    captions = answer.photos;
    $("photos").replaceChildren(...captions.map(article));
    showStatus([`${photos.length} photos, each captioned by ${MODELS} model${MODELS === 1 ? "" : "s"}.`, ...wrong].join(" "));
  } catch (error) { if (!mine.aborted) showStatus(error.message); }
}

function article(captions, number) {
  const overlay = made("div", { className: "attention" });
  overlay.setAttribute("aria-hidden", "true");
  const figure = made("figure", {}, made("img", { src: photos[number].url, alt: photos[number].name }), overlay);
  const texts = made("div", { className: "texts" }, ...captions.map((caption) => block(caption, number, overlay)));
  return made("article", {}, figure, texts);
}

function block(caption, number, overlay) {
  const text = made("p", { className: "text" });
  text.style.margin = "0";
  caption.words.forEach((word, i) => {
    if (!caption.attention) { text.append(word, " "); return; }
    const button = made("button", { type: "button", className: "word", textContent: word });
    const show = () => draw(overlay, caption, i), hide = () => overlay.replaceChildren();
    for (const [event, act] of [["mouseenter", show], ["focus", show], ["mouseleave", hide], ["blur", hide]]) button.addEventListener(event, act);
    text.append(button, " ");
  });
  const first = caption.retrieved.slice(0, 5).map((found) => made("li", { className: found === number && !caption.unlike ? "right" : "" },
    made("img", { src: photos[found].url, alt: (found === number ? "the right photo: " : "") + photos[found].name })));
  const rank = made("li", { textContent: `rank ${caption.rank} of ${photos.length}; ranked first:` });
  const warning = caption.unlike ? [made("p", { className: "unlike", textContent: "This photo is unlike the model's training images: caption and ranks mean little." })] : [];
  return made("div", { className: "caption" }, made("h3", { textContent: caption.model }), text, ...warning, made("ul", { className: "thumbs" }, rank, ...first));
}

function draw(overlay, caption, word) {
  const shares = caption.attention[word], most = Math.max(...shares), side = Math.round(Math.sqrt(shares.length));
  overlay.classList.toggle("boxes", Boolean(caption.boxes));
  overlay.style.gridTemplate = caption.boxes ? "" : `repeat(${side}, 1fr) / repeat(${side}, 1fr)`;
  overlay.replaceChildren(...shares.map((share, k) => {
    const cell = made("i");
    cell.style.opacity = String(0.85 * share / most);
    if (caption.boxes) {
      const [left, top, right, bottom] = caption.boxes[k].map((x) => 100 * x);
      Object.assign(cell.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
    }
    return cell;
  }));
}

async function search(event) {
  event.preventDefault();
  try {
    const answer = await post("find", { text: $("text").value, photos: photos.map((p) => p.data), model: $("listener").value });
    $("found").replaceChildren(...answer.found.slice(0, 10).map(({ photo, score }) =>
      made("li", {}, made("img", { src: photos[photo].url, alt: photos[photo].name }), `${photos[photo].name} · ${score.toFixed(2)}`)));
    const odd = answer.unlike.length ? ` ${answer.unlike.length} of ${photos.length} photos are unlike the model's training images: scores mean little.` : "";
    showStatus((answer.unknown.length ? `Words that are not in the vocabulary: ${answer.unknown.join(", ")}.` : `The best is ${photos[answer.found[0].photo].name}.`) + odd);
  } catch (error) { showStatus(error.message); }
}

const shuffled = (list) => list.map((x) => [Math.random(), x]).sort((a, b) => a[0] - b[0]).map(([, x]) => x);

// Return ten photos in random order: one, and those that the listener ranks highest by its caption.
function lookAlikes(model) {
  const [first, ...others] = shuffled([...photos.keys()]);
  const caption = captions[first]?.find((each) => each.model === model);
  const ranked = caption ? caption.retrieved.filter((number) => number !== first) : others;
  return shuffled([first, ...ranked.slice(0, 9)]).map((number) => photos[number]);
}

async function play() {
  $("choices").replaceChildren();
  $("shown-caption").textContent = "Generating a caption …";
  const model = $("speaker").value, shown = lookAlikes(model), target = Math.floor(Math.random() * shown.length);
  try {
    const data = shown.map((p) => p.data);
    const [caption] = (await post("caption", { photos: data, models: [model], among: true })).photos[target];
    const names = shown.map((p, i) => `${i + 1} ${p.name}`); // two photos may have one name
    round = { study: "play", sheet: SHEET, task: "play", rater: SHEET, question: String(rounds.length + 1), asked: caption.caption,
      shown: names, right: names[target], listener: names[caption.retrieved[0]], model, began: performance.now() };
    $("shown-caption").textContent = `“${caption.caption}”`;
    $("choices").replaceChildren(...shown.map((photo, i) => {
      const button = made("button", { type: "button", onclick: () => choose(i) }, made("img", { src: photo.url, alt: "" }), String(i + 1));
      button.setAttribute("aria-label", `photo ${i + 1}, ${photo.name}`);
      return button;
    }));
    $("choices").firstElementChild.focus();
  } catch (error) { $("shown-caption").textContent = error.message; }
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
  const right = (who) => rounds.filter((each) => each[who] === each.right).length;
  const yours = answer === target ? "Right." : `No, it was photo ${target + 1}.`;
  const listener = round.listener === round.right ? "The listener ranked it first." : "The listener did not rank it first.";
  $("score").textContent = `${yours} ${listener} You: ${right("chosen")} of ${rounds.length}; the listener: ${right("listener")} of ${rounds.length}.`;
  $("save").hidden = false;
  $("next").focus();
}

function save() {
  const lines = rounds.map(({ began, ...each }) => JSON.stringify(each) + "\n");
  const url = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  made("a", { href: url, download: "rounds.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function samples() {
  const start = 10 * Math.floor(Math.random() * Math.max(1, Math.floor(SAMPLES / 10))); // ten photos of one group
  const numbers = [...Array(SAMPLES).keys()].slice(start, start + 10);
  const files = await Promise.all(numbers.map(async (n) => [await (await fetch(`samples/${n}`)).blob(), `sample ${n + 1}`]));
  photos = await Promise.all(files.map(([file, name]) => read(file, name)));
  await refresh();
}

$("files").addEventListener("change", (event) => { add(event.target.files); });
$("wanted").addEventListener("change", () => refresh());
$("clear").addEventListener("click", () => { photos = []; $("files").value = ""; refresh(); $("files").focus(); });
$("try")?.addEventListener("click", samples);
$("search").querySelector("form").addEventListener("submit", search);
$("next").addEventListener("click", play);
$("save").addEventListener("click", save);
for (const event of ["dragover", "dragleave", "drop"]) $("drop").addEventListener(event, (e) => {
  e.preventDefault();
  $("drop").classList.toggle("over", event === "dragover");
  if (event === "drop") add(e.dataTransfer.files);
});
document.addEventListener("keydown", (event) => {
  if (!/^[0-9]$/.test(event.key) || event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  choose(event.key === "0" ? 9 : Number(event.key) - 1);
});
