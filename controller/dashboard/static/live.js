// Keeps a page that the server rendered up to date: swaps fragments that the server rendered again, opens a cell without
// a reload, and tells ages. Without this file every page still works: links, forms and a refresh.
"use strict";

const page = document.querySelector("[data-events]");
const lamp = document.getElementById("lamp");
let source = null;

function say(state, text) {
  if (!lamp) return;
  lamp.dataset.state = state;
  lamp.querySelector("span").textContent = text;
}

// Open details and the focus survive a swap; a person who reads or types is not disturbed.
function swap(id, html) {
  const old = document.getElementById("f-" + id);
  if (!old) return;
  const opened = new Set([...old.querySelectorAll("details[open][id]")].map((d) => d.id));
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  old.innerHTML = html;
  for (const details of old.querySelectorAll("details[id]")) if (opened.has(details.id)) details.open = true;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  tellAges(old);
}

function listen() {
  if (!page || !window.EventSource) return;
  source?.close();
  source = new EventSource(page.dataset.events + location.search);
  source.addEventListener("open", () => say("live", "live"));
  source.addEventListener("error", () => say("lost", "reconnecting"));
  source.addEventListener("fragments", (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) swap(id, html);
    say("live", "live");
  });
  source.addEventListener("problem", (event) => say("lost", JSON.parse(event.data)));
  source.addEventListener("signed-out", () => location.reload());
}

// A cell is a link to a page on which it is open; here the stream simply starts anew with that cell.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-cell]");
  if (!link || !source || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  for (const cell of document.querySelectorAll("a[data-cell]")) cell.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  listen();
  document.getElementById("f-cell")?.scrollIntoView({ block: "nearest" });
});
window.addEventListener("popstate", listen);

function age(seconds) {
  if (seconds < 5) return "now";
  if (seconds < 90) return Math.round(seconds) + " s ago";
  if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h ago";
  return Math.round(seconds / 86400) + " d ago";
}

function tellAges(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const then = Date.parse(time.dateTime);
    if (Number.isNaN(then)) continue;
    time.title ||= time.textContent.trim();
    time.textContent = age((Date.now() - then) / 1000);
  }
}

// The list has no stream: it asks for itself.
const list = document.querySelector("[data-poll]");
async function poll() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (answer.redirected || !answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-poll]");
  if (fresh && fresh.innerHTML !== list.innerHTML && !list.contains(document.activeElement)) list.innerHTML = fresh.innerHTML;
}
if (list) setInterval(() => poll().catch(() => {}), 5000);

document.documentElement.classList.add("js");
tellAges(document);
setInterval(() => tellAges(document), 5000);
listen();
