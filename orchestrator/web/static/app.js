// Times in the viewer's zone, live updates, and keys. Every page also works without it.
"use strict";
{
const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const two = (n) => String(n).padStart(2, "0");

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(element.dateTime);
    element.title = `${zone.format(at)} (${element.textContent})`;
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    element.textContent = `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
}

function notice(text) {
  const element = document.getElementById("notice");
  element.textContent = text;
  element.hidden = !text;
}

// A new server does not know the browser: its answer says what to do.
async function explain() {
  try {
    const answer = await fetch(document.body.dataset.root);
    if (answer.status === 401) notice(await answer.text());
  } catch {
    // There is no server.
  }
}

function connection(text, lost) {
  const element = document.getElementById("connection");
  element.textContent = text;
  element.classList.toggle("lost", lost);
  element.hidden = !text;
}

// Replaces a part of the page; what is focused and open stays so.
function replace(part) {
  const old = document.getElementById(part.id);
  if (!old || old.innerHTML === part.innerHTML) return;
  const active = document.activeElement;
  const key = old.contains(active) ? active.getAttribute("href") : null;
  for (const each of old.querySelectorAll("details[open][id]")) {
    part.querySelector(`#${CSS.escape(each.id)}`)?.setAttribute("open", "");
  }
  for (const each of old.querySelectorAll("input:checked")) {
    part.querySelector(`[name="${each.name}"][value="${CSS.escape(each.value)}"]`)?.setAttribute("checked", "");
  }
  const scrolled = [...old.querySelectorAll(".tall")].map((each) => each.scrollTop);
  old.replaceChildren(...part.childNodes);
  old.querySelectorAll(".tall").forEach((each, n) => (each.scrollTop = scrolled[n] || 0));
  if (key) old.querySelector(`a[href="${CSS.escape(key)}"]`)?.focus();
}

// Replaces the live parts of the page by what the server shows now.
let loading = null;
async function reload() {
  if (loading) loading.abort();
  const request = (loading = new AbortController());
  const url = new URL(location.href);
  url.searchParams.set("fragment", "1");
  try {
    const answer = await fetch(url, { signal: request.signal });
    if (!answer.ok) return;
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(text, "text/html");
    showTimes(fresh.body);
    for (const part of fresh.querySelectorAll("[data-part]")) replace(part);
  } catch (error) {
    if (error.name !== "AbortError") connection("not connected", true);
  }
}

// One stream for a page, only while it is visible: browsers allow six connections to a server.
function stream(live, listeners) {
  let source = null;
  let position = live.dataset.position;
  const open = () => {
    if (source) return;
    const url = new URL(live.dataset.events, location.href);
    if (position) url.searchParams.set("from", position);
    source = new EventSource(url);
    source.addEventListener("hello", (event) => {
      connection("live", false);
      if (JSON.parse(event.data).version !== document.body.dataset.version) {
        notice("The server was upgraded. Reload this page.");
      }
    });
    source.onerror = () => {
      connection("not connected; trying again", true);
      // After an answer that is no stream the browser does not try again by itself.
      if (source?.readyState === EventSource.CLOSED) {
        close();
        explain();
        setTimeout(() => document.hidden || open(), 5000);
      }
    };
    for (const [name, listener] of Object.entries(listeners)) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) position = event.lastEventId;
        listener(JSON.parse(event.data));
      });
    }
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", () => document.hidden || open());
  if (!document.hidden) open();
}

function later(work, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}

// At once after a pause, otherwise at most once in a time.
function paced(work, firstMs, pauseMs) {
  let timer = 0;
  let last = -pauseMs;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      last = performance.now();
      work();
    }, Math.max(firstMs, last + pauseMs - performance.now()));
  };
}

function atMost(work, milliseconds) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      work();
    }, milliseconds);
  };
}

// Filters apply while typing; the address has them, so that Back and links work.
function filterForm(form) {
  const apply = async () => {
    const url = new URL(form.action);
    for (const [name, value] of new FormData(form)) if (value) url.searchParams.set(name, value);
    history.replaceState(null, "", url);
    await reload();
  };
  form.addEventListener("input", later(apply, 200));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
}

document.documentElement.classList.add("js");
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-select-all]")) return;
  const boxes = event.target.closest("table").querySelectorAll("tbody input[type=checkbox]");
  for (const box of boxes) box.checked = event.target.checked;
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const target = document.querySelector(`[data-hotkey="${CSS.escape(event.key)}"]`);
  if (target) {
    event.preventDefault();
    target.focus();
  }
});

showTimes(document);
const charts = globalThis.startCharts?.();
const log = globalThis.startLog?.();
const live = document.getElementById("live");
if (live?.dataset.events) {
  const refresh = () => {
    reload();
    if (!live.dataset.position) charts?.update();
  };
  const seldom = atMost(refresh, 5000);
  stream(live, {
    changed: paced(refresh, 150, Number(live.dataset.paceMs) || 1500),
    state: later(refresh, 150),
    metrics: () => {
      charts?.update();
      seldom();
    },
    log: (data) => log?.add(data),
    "log-reset": (data) => log?.reset(data),
  });
  const form = document.querySelector("[data-live-form]");
  if (form) filterForm(form);
  // Elapsed times go on.
  setInterval(() => document.hidden || refresh(), 60000);
}
}
