// The page shows one round after the other. The browser stores the answers, so a rater can close the page and continue.
"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const element = (id) => document.getElementById(id);
const rounds = [...content.qualification, ...content.rounds], qualificationCount = content.qualification.length;
const retrieval = content.task === "retrieval";
const buttons = [...document.querySelectorAll("#options button")];
let rater = "", answers = [], startTime = 0;

const storageKey = () => `${content.study}/${content.sheet}/${rater}`;
function loadAnswers() { // a browser may forbid storage
  try { return JSON.parse(localStorage.getItem(storageKey())) ?? []; } catch { return []; }
}
function saveAnswers() { try { localStorage.setItem(storageKey(), JSON.stringify(answers)); } catch { /* no storage */ } }

function hasPassed() {
  const right = content.qualification.filter((round, n) => answers[n]?.chosen === round.right).length;
  return right >= content.needed;
}

function showSection(id) { for (const section of document.querySelectorAll("section")) section.hidden = section.id !== id; }

function makeImage(name, alt) {
  const image = new Image();
  image.src = `images/${name}`;
  image.alt = alt;
  return image;
}

function showNextRound() {
  const n = answers.length;
  if (n === rounds.length || (n === qualificationCount && !hasPassed())) return showEnd();
  const round = rounds[n];
  element("progress").textContent = n < qualificationCount ? `Qualification round ${n + 1} of ${qualificationCount}` : `${n - qualificationCount + 1} of ${content.rounds.length}`;
  element("asked").textContent = retrieval ? round.asked || "(no words)" : "Which caption is better written?";
  element("about").hidden = retrieval;
  if (!retrieval) element("about").src = `images/${round.asked}`;
  round.shown.forEach((option, side) => {
    buttons[side].replaceChildren(retrieval ? makeImage(option, side ? "right image" : "left image") : option || "(no words)");
  });
  showSection("round");
  element("asked").focus();
  startTime = performance.now();
}

function choose(side) {
  const round = rounds[answers.length];
  answers.push({
    study: content.study, sheet: content.sheet, task: content.task, rater, question: round.question, asked: round.asked,
    shown: round.shown, chosen: round.shown[side], seconds: Math.round(performance.now() - startTime) / 1000,
  });
  saveAnswers();
  showNextRound();
}

async function showEnd() {
  const complete = answers.length === rounds.length, lines = answers.map((answer) => JSON.stringify(answer) + "\n").join("");
  element("thanks").textContent = complete ? "Thank you! That was all." : "Thank you. The qualification rounds had too many wrong answers to go on.";
  element("code").textContent = complete ? content.codes.complete : content.codes.screened;
  element("answers").value = lines;
  element("save").href = URL.createObjectURL(new Blob([lines], { type: "application/jsonl" }));
  element("save").download = `${content.sheet}-${rater.replace(/[^\w-]/g, "_")}.jsonl`;
  showSection("end");
  element("thanks").focus();
  if (!content.send) return;
  element("sent").textContent = "Sending the answers …";
  try {
    const reply = await fetch(content.send, { method: "POST", body: lines });
    if (!reply.ok) throw new Error(reply.status);
    element("sent").textContent = "The answers were sent.";
  } catch {
    element("sent").textContent = "The answers could not be sent: please save them and send the file to the person who asked you.";
  }
}

element("who").addEventListener("submit", (event) => {
  event.preventDefault();
  rater = element("rater").value.trim();
  if (!rater) return;
  answers = loadAnswers();
  showNextRound();
});
element("rater").value = new URLSearchParams(location.search).get("PROLIFIC_PID") ?? "";
buttons.forEach((button, side) => button.addEventListener("click", () => choose(side)));
document.addEventListener("keydown", (event) => {
  const side = { ArrowLeft: 0, ArrowRight: 1 }[event.key];
  if (element("round").hidden || side === undefined || event.repeat) return;
  event.preventDefault();
  choose(side);
});
