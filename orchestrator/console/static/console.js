// Replaces the live part of a page while the page is visible, and filters the table of views.
"use strict";
const live = document.getElementById("live");
const filter = document.getElementById("filter");
const note = document.getElementById("live-note");
let last = "";

function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll("#views tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

async function update() {
  if (document.hidden) return;
  try {
    const answer = await fetch(live.dataset.source);
    if (!answer.ok) throw new Error(String(answer.status));
    const text = await answer.text();
    if (text !== last) {
      const focused = document.activeElement;
      const link = live.contains(focused) ? focused.getAttribute("href") : null;
      const scrolled = [...live.querySelectorAll("figure, .wide")].map((e) => [e.scrollLeft, e.scrollTop]);
      live.innerHTML = text;
      last = text;
      live.dataset.updates = Number(live.dataset.updates || 0) + 1;
      live.querySelectorAll("figure, .wide").forEach((e, n) => {
        if (scrolled[n]) [e.scrollLeft, e.scrollTop] = scrolled[n];
      });
      if (link) live.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus();
      applyFilter();
    }
    if (note.textContent) note.textContent = "";
  } catch (error) {
    note.textContent = "No answer from idivm; the page shows the last state.";
  }
}

// The result of a wide plan is in the middle.
for (const figure of document.querySelectorAll("figure:not(.map)")) {
  figure.scrollLeft = (figure.scrollWidth - figure.clientWidth) / 2;
}

if (live) {
  filter.addEventListener("input", applyFilter);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      filter.focus();
    }
  });
  const again = async () => {
    await update();
    setTimeout(again, live.dataset.seconds * 1000);
  };
  setTimeout(again, live.dataset.seconds * 1000);
}
