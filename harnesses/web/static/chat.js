// Sends a question, and shows the answer while it is streamed; stops it, asks again, edits, copies.
"use strict";

const form = document.getElementById("ask");
const box = form.elements.text;
const said = document.getElementById("said");
const image = document.getElementById("image");
const attached = document.getElementById("attached");
const MOST = 2 * 1024 * 1024; // bytes that the server takes
const LARGEST = 1600; // pixels of the longer side, to which images over MOST are scaled down
const editing = document.getElementById("editing");
const send = form.querySelector("button");
let chosen = null;
let edited = null; // the article of the question that the next one replaces
let running = null; // the AbortController of the answer that is being written
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

const isImage = (file) => file.type.startsWith("image/");

function attach(file) {
  chosen = file;
  attached.hidden = !file;
  attached.firstElementChild.textContent = file ? `${isImage(file) ? "Image" : "File"} attached: ${file.name || "pasted"}` : "";
}

async function smaller(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LARGEST / Math.max(bitmap.width, bitmap.height));
  const canvas = new OffscreenCanvas(bitmap.width * scale, bitmap.height * scale);
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.85 });
}

async function encoded(file) {
  const bytes = new Uint8Array(await (isImage(file) && file.size > MOST ? await smaller(file) : file).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}

async function sent(file) {
  if (isImage(file)) return { image: await encoded(file) };
  if (file.size > MOST) throw new Error("A file can have at most 2 MB; paste the lines that matter.");
  return { file: { name: file.name.slice(-100), data: await encoded(file) } };
}

function button(name, act) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "plain";
  element.textContent = name;
  element.addEventListener("click", () => act(element));
  return element;
}

// Adds the buttons below an answer to the question `asked`, null for a reminder.
function equip(asked, answer) {
  const tools = document.createElement("p");
  tools.className = "tools";
  const copy = async (element) => {
    const words = answer.cloneNode(true);
    words.querySelectorAll(".tools").forEach((each) => each.remove());
    answer.append(words); // only what is laid out has line breaks
    const text = words.innerText.trim();
    words.remove();
    await navigator.clipboard.writeText(text);
    element.textContent = "Copied";
  };
  tools.append(button("Copy", copy));
  if (asked) {
    tools.append(
      button("Again", () => running || ask(asked.firstElementChild.textContent, asked.file, asked)),
      button("Edit", () => edit(asked)),
    );
  }
  answer.append(tools);
}

function edit(asked) {
  edited = asked;
  editing.hidden = !asked;
  if (!asked) return;
  box.value = asked.firstElementChild.textContent;
  grow();
  box.focus();
}

// Asks, in the place of the question `replaced` and all after it if there is one. They are shown
// again unless there is an answer.
async function ask(text, file, replaced) {
  document.getElementById("welcome")?.remove();
  const replaces = Number(replaced?.dataset.turn) || null;
  const articles = [...said.children];
  const first = articles.findIndex((each) => (replaces ? Number(each.dataset.turn) === replaces : each === replaced));
  const old = replaced ? articles.slice(first, replaces ? undefined : first + 2) : [];
  for (const each of old) each.hidden = true;
  const asked = article("asked", text);
  asked.file = file;
  if (replaces) asked.dataset.turn = replaces;
  if (file) {
    const name = isImage(file) ? "[image]" : file.name;
    asked.append(Object.assign(document.createElement("p"), { className: "muted", textContent: name }));
  }
  const answer = article("answered waiting", "");
  const shown = answer.firstElementChild;
  running = new AbortController();
  send.textContent = "Stop";
  try {
    const response = await fetch("/chat", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        text, replaces, conversation: form.dataset.name, model: form.elements.model?.value ?? "",
        ...(file ? await sent(file) : {}),
      }),
      signal: running.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    let ended = false;
    for await (const piece of lines(response.body)) {
      if (piece.html === undefined) {
        shown.textContent += piece.text;
      } else {
        answer.innerHTML = piece.html; // sanitized by the server
        answer.classList.toggle("failed", !piece.ok);
        if (piece.turn) known.add(Number((asked.dataset.turn = piece.turn)));
        if (piece.turn || !replaces) for (const each of old.splice(0)) each.remove();
        ended = true;
      }
      toEnd();
    }
    if (!ended) throw new Error("The answer broke off. Ask again.");
    document.getElementById("forget").hidden = false;
  } catch (error) {
    if (running.signal.aborted) {
      answer.append(Object.assign(document.createElement("p"), {
        className: "muted", textContent: "Stopped. This is not remembered.",
      }));
    } else {
      const lost = error instanceof TypeError; // fetch throws it for network errors
      shown.textContent = lost ? "Terrarium cannot be reached. Ask again in a moment." : error.message;
      answer.replaceChildren(shown);
      answer.classList.add("failed");
    }
  } finally {
    for (const each of old) each.hidden = false;
    answer.classList.remove("waiting");
    equip(asked, answer);
    running = null;
    send.textContent = "Send";
    showArrived();
    toEnd();
  }
}

// Turns that come from elsewhere: reminders, and what the same person asks in another window.
const title = document.title;
const arrived = [];
const known = new Set([...said.querySelectorAll("[data-turn]")].map((each) => Number(each.dataset.turn)));
let source = null;
let unread = 0;

function showArrived() {
  if (running) return; // one of them may be the turn that is being answered here
  for (const { turn, html } of arrived.splice(0)) {
    if (!html || known.has(turn)) continue;
    known.add(turn);
    document.getElementById("welcome")?.remove();
    said.insertAdjacentHTML("beforeend", html);
    const answer = said.lastElementChild;
    equip(answer.dataset.turn ? null : answer.previousElementSibling, answer);
    if (document.hidden) document.title = `(${++unread}) ${title}`;
    toEnd();
  }
}

function follow() {
  if (!document.hidden) [unread, document.title] = [0, title];
  source?.close();
  source = new EventSource(`/chat/${form.dataset.name}/tail?after=${said.dataset.last}&once=${document.hidden}`);
  source.onmessage = (message) => {
    said.dataset.last = message.lastEventId;
    arrived.push(JSON.parse(message.data));
    showArrived();
  };
}

function grow() {
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight / 3)}px`;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = box.value.trim();
  if (running || !text) return;
  box.value = "";
  grow();
  const [file, replaced] = [chosen, edited];
  attach(null);
  edit(null);
  await ask(text, file, replaced);
  box.focus();
});
send.addEventListener("click", (event) => {
  if (!running) return;
  event.preventDefault();
  running.abort();
});

box.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
box.addEventListener("input", grow);
box.addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find((each) => each.type.startsWith("image/"));
  if (!file) return;
  event.preventDefault();
  attach(file);
});
image.addEventListener("change", () => {
  attach(image.files[0] ?? null);
  image.value = "";
  box.focus();
});
editing.querySelector("button").addEventListener("click", () => { edit(null); box.value = ""; grow(); });
// The bookmarklet sends the text of the page from which it has opened this one.
addEventListener("message", ({ source, data }) => {
  if (!opener || source !== opener || typeof data?.terrarium !== "string") return;
  attach(new File([data.terrarium.slice(0, MOST / 4)], "page.txt", { type: "text/plain" }));
});
opener?.postMessage("terrarium", "*");
for (const answer of said.querySelectorAll(".answered")) {
  equip(answer.dataset.turn ? null : answer.previousElementSibling, answer);
}
document.addEventListener("visibilitychange", follow);
follow();
if (matchMedia("(min-width: 64rem)").matches) document.getElementById("talks").open = true;
attached.querySelector("button").addEventListener("click", () => attach(null));
toEnd();
