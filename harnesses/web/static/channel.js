// The live end of a channel: appends new lines to the page, which the server has rendered, marks
// those that came after the last visit, and has Terra say something.
"use strict";

const log = document.getElementById("log");
const state = document.getElementById("state");
const below = document.getElementById("below");
const say = document.getElementById("say");
const MOST = 2000; // list items on the page; beyond that, the oldest are removed
const PAUSE = 300_000; // milliseconds after which a nick is shown again, as in view.py
const SEEN = `seen ${location.pathname}`; // the last line that was read here

let source = null;
let last = log ? log.dataset.last : null;
let unread = 0;

const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 60;
const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });
const idOf = (line) => Number(line.id.slice(1)); // the milliseconds of its time, or a little more

function add(message) {
  const { html, day } = JSON.parse(message.data);
  const following = atEnd();
  last = message.lastEventId;
  const fragment = document.createElement("template");
  fragment.innerHTML = html;
  const days = log.querySelectorAll(".day");
  if (days.length && days[days.length - 1].dataset.day === day) {
    fragment.content.querySelector(".day").remove();
  }
  joinNick(fragment.content.querySelector(".line"));
  if (!joinQuiet(fragment.content)) log.append(fragment.content);
  while (log.children.length > MOST) log.firstElementChild.remove();
  if (following) toEnd();
  else unread += 1;
  look();
}

// Leaves out the nick of a line that continues the one at the end of the page.
function joinNick(line) {
  const before = log.lastElementChild;
  if (!line || !before?.matches(".line") || line.matches(".action")) return;
  const same = (each) => each.className.replace(" same", "") + each.querySelector(".nick").textContent;
  if (same(line) === same(before) && idOf(line) - idOf(before) < PAUSE) line.classList.add("same");
}

// Adds quiet events (joins, parts, modes) to the fold at the end of the page, if it ends with one.
function joinQuiet(content) {
  const from = content.firstElementChild;
  const to = log.lastElementChild;
  if (content.children.length !== 1 || !from.matches(".quiet") || !to || !to.matches(".quiet")) {
    return false;
  }
  to.querySelector("summary span").append(", ", ...from.querySelector("summary span").childNodes);
  to.querySelector("ul").append(...from.querySelectorAll("ul > li"));
  return true;
}

// Tells of the lines below the window. Those that were in it have been read.
function look() {
  const { scrollHeight } = document.documentElement;
  if (atEnd()) {
    unread = 0;
    if (!document.hidden) localStorage.setItem(SEEN, last);
  }
  below.hidden = !unread && innerHeight + scrollY > scrollHeight - innerHeight;
  below.textContent = unread ? `${unread} new line${unread === 1 ? "" : "s"} ↓` : "Newest ↓";
}

// Puts a mark before the first line that came after the last visit.
function markUnread() {
  const seen = Number(localStorage.getItem(SEEN));
  const lines = [...log.querySelectorAll(".line")];
  const first = lines.findIndex((line) => idOf(line) > seen);
  if (!seen || first < 1) return;
  const mark = document.createElement("li");
  mark.className = "unread";
  mark.innerHTML = "<h2>New since your last visit</h2>";
  lines[first].before(mark);
}

function tell(text, live) {
  state.textContent = text;
  state.classList.toggle("live", live);
}

function follow() {
  if (source || document.hidden) return;
  const address = new URL(log.dataset.tail, location.href);
  address.searchParams.set("after_id", last);
  source = new EventSource(address);
  source.onopen = () => tell("live", true);
  source.onmessage = add;
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) {
      tell("the connection was refused; reload to try again", false);
    } else {
      tell("reconnecting…", false);
    }
  };
}

// Browsers open at most six HTTP/1.1 connections to a host, so a hidden tab closes its stream.
function onVisibilityChange() {
  if (!document.hidden) {
    log.querySelector(".unread")?.remove();
    markUnread();
    return follow();
  }
  if (source) source.close();
  source = null;
}

// Scrolls to the line in the fragment; if it is not on this page, loads the page around it.
function findLinked() {
  const linked = /^#e(\d+)$/.exec(location.hash);
  if (!linked) return false;
  const line = document.getElementById(`e${linked[1]}`);
  if (!line) {
    if (!location.search) location.replace(`?at=${linked[1]}${location.hash}`);
    return true;
  }
  const fold = line.closest("details");
  if (fold) fold.open = true;
  line.scrollIntoView({ block: "center" });
  return true;
}

if (log) {
  addEventListener("hashchange", findLinked);
  if (!findLinked() && log.dataset.tail && !location.search) toEnd();
  if (log.dataset.tail) {
    document.addEventListener("visibilitychange", onVisibilityChange);
    addEventListener("scroll", look, { passive: true });
    below.addEventListener("click", toEnd);
    markUnread();
    look();
    follow();
  }
}

if (say) {
  say.hidden = false;
  const told = document.getElementById("said");
  say.addEventListener("submit", async (event) => {
    event.preventDefault();
    const box = say.elements.text;
    const response = await fetch(say.action, { method: "POST", body: box.value }).catch(() => null);
    if (response?.ok) box.value = "";
    told.textContent = response?.ok ? "Terra will say it as soon as it is on the channel."
      : response ? (await response.json()).error.message : "Terrarium cannot be reached.";
    box.focus();
  });
}
