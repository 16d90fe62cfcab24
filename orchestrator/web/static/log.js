// Appends new lines of a log, and stays at its end while the viewer is there.
"use strict";
{
const MOST_LINES = 5000;

function startLog() {
  const box = document.querySelector("[data-log]");
  if (!box) return null;
  const list = box.querySelector("ol");
  const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  const toEnd = () => (box.scrollTop = box.scrollHeight);
  let number = Number(box.dataset.next) || null;

  const item = (text, isPartial) => {
    const line = document.createElement("li");
    const label = document.createElement("span");
    label.className = "n";
    if (number && !isPartial) {
      label.textContent = number;
      number += 1;
    }
    line.append(label, text);
    line.classList.toggle("partial", isPartial);
    return line;
  };
  const add = (data) => {
    const follows = isAtEnd();
    list.querySelector(".partial")?.remove();
    const lines = data.lines.map((text) => item(text, false));
    if (data.partial) lines.push(item(data.partial, true));
    list.append(...lines);
    while (list.childElementCount > MOST_LINES) list.firstElementChild.remove();
    box.querySelector(".empty")?.remove();
    if (follows) toEnd();
  };
  if (!location.hash.startsWith("#L")) toEnd();
  return {
    add,
    reset(data) {
      number = data.first_line;
      list.replaceChildren();
      add(data);
      toEnd();
    },
  };
}
globalThis.startLog = startLog;
}
