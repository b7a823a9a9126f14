// The live end of a channel: appends new lines to the page, which the server has rendered.
"use strict";

const log = document.getElementById("log");
const state = document.getElementById("state");
const below = document.getElementById("below");
const MOST = 2000; // list items on the page; beyond that, the oldest are removed

let source = null;
let last = log ? log.dataset.last : null;
let unread = 0;

const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 60;
const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

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
  if (!joinQuiet(fragment.content)) log.append(fragment.content);
  while (log.children.length > MOST) log.firstElementChild.remove();
  if (following) toEnd();
  else showUnread(unread + 1);
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

function showUnread(count) {
  unread = count;
  below.hidden = count === 0;
  below.textContent = count === 1 ? "1 new line ↓" : `${count} new lines ↓`;
}

function say(text, live) {
  state.textContent = text;
  state.classList.toggle("live", live);
}

function follow() {
  if (source || document.hidden) return;
  const address = new URL(log.dataset.tail, location.href);
  address.searchParams.set("after_id", last);
  source = new EventSource(address);
  source.onopen = () => say("live", true);
  source.onmessage = add;
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) {
      say("the connection was refused; reload to try again", false);
    } else {
      say("reconnecting…", false);
    }
  };
}

// Browsers open at most six HTTP/1.1 connections to a host, so a hidden tab closes its stream.
function onVisibilityChange() {
  if (!document.hidden) return follow();
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
    addEventListener("scroll", () => unread && atEnd() && showUnread(0), { passive: true });
    below.addEventListener("click", () => { showUnread(0); toEnd(); });
    follow();
  }
}
