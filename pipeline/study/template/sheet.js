// Rounds one after the other. Answers are kept in the browser until the end, so that a rater who closes the page can continue.
"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const at = (id) => document.getElementById(id);
const rounds = [...content.qualification, ...content.rounds], practice = content.qualification.length;
const retrieval = content.task === "retrieval";
const buttons = [...document.querySelectorAll("#options button")];
let rater = "", answers = [], began = 0;

const storageKey = () => `${content.study}/${content.sheet}/${rater}`;
function loadAnswers() { // a browser may forbid storage
  try { return JSON.parse(localStorage.getItem(storageKey())) ?? []; } catch { return []; }
}
function saveAnswers() { try { localStorage.setItem(storageKey(), JSON.stringify(answers)); } catch { /* no storage */ } }

function passed() {
  const right = content.qualification.filter((round, n) => answers[n]?.chosen === round.right).length;
  return right >= content.needed;
}

function show(id) { for (const section of document.querySelectorAll("section")) section.hidden = section.id !== id; }

function picture(name, alt) {
  const image = new Image();
  image.src = `images/${name}`;
  image.alt = alt;
  return image;
}

function next() {
  const n = answers.length;
  if (n === rounds.length || (n === practice && !passed())) return end();
  const round = rounds[n];
  at("progress").textContent = n < practice ? `Practice ${n + 1} of ${practice}` : `${n - practice + 1} of ${content.rounds.length}`;
  at("asked").textContent = retrieval ? round.asked || "(no words)" : "Which caption is better written?";
  at("about").hidden = retrieval;
  if (!retrieval) at("about").src = `images/${round.asked}`;
  round.shown.forEach((option, side) => {
    buttons[side].replaceChildren(retrieval ? picture(option, side ? "right image" : "left image") : option || "(no words)");
  });
  show("round");
  at("asked").focus();
  began = performance.now();
}

function choose(side) {
  const round = rounds[answers.length];
  answers.push({
    study: content.study, sheet: content.sheet, task: content.task, rater, question: round.question, asked: round.asked,
    shown: round.shown, chosen: round.shown[side], seconds: Math.round(performance.now() - began) / 1000,
  });
  saveAnswers();
  next();
}

async function end() {
  const whole = answers.length === rounds.length, lines = answers.map((answer) => JSON.stringify(answer) + "\n").join("");
  at("thanks").textContent = whole ? "Thank you! That was all." : "Thank you. The practice had too many wrong answers to go on.";
  at("code").textContent = whole ? content.codes.complete : content.codes.screened;
  at("answers").value = lines;
  at("save").href = URL.createObjectURL(new Blob([lines], { type: "application/jsonl" }));
  at("save").download = `${content.sheet}-${rater.replace(/[^\w-]/g, "_")}.jsonl`;
  show("end");
  at("thanks").focus();
  if (!content.send) return;
  at("sent").textContent = "Sending the answers …";
  try {
    const reply = await fetch(content.send, { method: "POST", body: lines });
    if (!reply.ok) throw new Error(reply.status);
    at("sent").textContent = "The answers were sent.";
  } catch {
    at("sent").textContent = "The answers could not be sent: please save them and send the file to whoever asked you.";
  }
}

at("who").addEventListener("submit", (event) => {
  event.preventDefault();
  rater = at("rater").value.trim();
  if (!rater) return;
  answers = loadAnswers();
  next();
});
at("rater").value = new URLSearchParams(location.search).get("PROLIFIC_PID") ?? "";
buttons.forEach((button, side) => button.addEventListener("click", () => choose(side)));
document.addEventListener("keydown", (event) => {
  const side = { ArrowLeft: 0, ArrowRight: 1 }[event.key];
  if (at("round").hidden || side === undefined || event.repeat) return;
  event.preventDefault();
  choose(side);
});
