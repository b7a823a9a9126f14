// Keyboard shortcuts: "/" focuses the search box, "p" and "n" open the previous and the next day
// (or year), "j" and "k" move from line to line, "h" and "c" open the first page and the chat, "?"
// lists the shortcuts. Keys with Ctrl, Meta or Alt are left to the browser.
"use strict";

const LINES = ".line .when, .channels a";

const keys = {
  "/": () => {
    const box = document.querySelector("main [name=q]") || document.querySelector(".find [name=q]");
    if (!box) return false;
    box.focus();
    box.select();
  },
  "p": () => go("prev"),
  "n": () => go("next"),
  "j": () => step(1),
  "k": () => step(-1),
  "h": () => location.assign("/"),
  "c": () => location.assign("/chat"),
  "?": () => document.getElementById("keys")?.showModal(),
};

function go(way) {
  const link = document.querySelector(`a[rel=${way}]`);
  if (!link) return false;
  link.click();
}

// Moves the focus by so many lines; without a focused line, to the first visible one.
function step(by) {
  const lines = [...document.querySelectorAll(LINES)];
  const now = lines.indexOf(document.activeElement);
  const seen = lines.findIndex((line) => line.getBoundingClientRect().top > 120);
  const next = lines[now < 0 ? seen : now + by];
  if (!next) return false;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  const key = keys[event.key];
  if (!key || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (key() !== false) event.preventDefault();
});

// Browsers let pages write to the clipboard only over HTTPS and on this machine.
for (const button of navigator.clipboard ? document.querySelectorAll("[data-copy]") : []) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(new URL(button.dataset.copy, location));
    button.textContent = "Copied";
  });
}

// As long as nobody has chosen a zone, times are those of this device.
const device = Intl.DateTimeFormat().resolvedOptions().timeZone;
const shown = document.documentElement.dataset.zone;
if (shown && shown !== device && sessionStorage.getItem("zone") !== device) {
  sessionStorage.setItem("zone", device); // once: the server may not know it
  document.cookie = `terrarium_device_zone=${device}; path=/; max-age=31536000; samesite=lax`;
  location.reload();
}

// On the page of time zones: offers the zone of this device as a button.
const here = document.getElementById("here");
const zone = document.getElementById("zone");
if (here && zone) {
  const option = [...zone.options].find((each) => each.value === device);
  if (option && !option.selected) {
    const button = here.querySelector("button");
    button.textContent = device;
    button.addEventListener("click", () => { option.selected = true; zone.form.requestSubmit(); });
    here.hidden = false;
  }
}
