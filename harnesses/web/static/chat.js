// Sends a question and shows the answer while it is written.
"use strict";

const form = document.getElementById("ask");
const box = form.elements.text;
const said = document.getElementById("said");
const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

function article(kind, text) {
  const element = document.createElement("article");
  const paragraph = document.createElement("p");
  element.className = kind;
  paragraph.dir = "auto";
  paragraph.textContent = text;
  element.append(paragraph);
  said.append(element);
  toEnd();
  return element;
}

async function* lines(stream) {
  let rest = "";
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

async function ask(text) {
  document.getElementById("welcome")?.remove();
  article("asked", text);
  const answer = article("answered waiting", "");
  const shown = answer.firstElementChild;
  try {
    const response = await fetch("/chat", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text }),
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    let ended = false;
    for await (const piece of lines(response.body)) {
      if (piece.html === undefined) {
        shown.textContent += piece.text;
      } else {
        answer.innerHTML = piece.html; // cleaned by the server
        answer.classList.toggle("failed", !piece.ok);
        ended = true;
      }
      toEnd();
    }
    if (!ended) throw new Error("The answer broke off. Ask again.");
    document.getElementById("forget").hidden = false;
  } catch (error) {
    const lost = error instanceof TypeError; // what fetch throws when nobody answers
    shown.textContent = lost ? "Terrarium cannot be reached. Ask again in a moment." : error.message;
    answer.replaceChildren(shown);
    answer.classList.add("failed");
  } finally {
    answer.classList.remove("waiting");
    toEnd();
  }
}

function grow() {
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight / 3)}px`;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = box.value.trim();
  const button = form.querySelector("button");
  if (!text || button.disabled) return;
  box.value = "";
  grow();
  button.disabled = true;
  await ask(text);
  button.disabled = false;
  box.focus();
});

box.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
box.addEventListener("input", grow);
toEnd();
