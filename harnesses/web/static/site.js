// The key "/" goes to the search box, as on many sites of text.
"use strict";

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = document.querySelector(".search [name=q]") || document.querySelector(".find [name=q]");
  if (!box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
