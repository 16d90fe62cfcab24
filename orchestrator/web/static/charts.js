// Draws the metrics of a page with uPlot. A table with the same data is a link away.
"use strict";
{
const css = getComputedStyle(document.documentElement);
const colour = (name) => css.getPropertyValue(name).trim();
const COLOURS = 8;

function seriesOf(figure) {
  return figure.lines.map((line, n) => ({
    label: line.label || figure.name,
    stroke: colour(`--c${n % COLOURS}`),
    width: 1.5,
    dash: n >= COLOURS ? [5, 3] : undefined,
    points: { show: line.x.length < 3 },
    spanGaps: false,
  }));
}

// One x for all lines. A gap of a line is kept, a missing x of another line is none.
function joined(figure) {
  if (figure.lines.length === 1) return [figure.lines[0].x, figure.lines[0].y];
  const tables = figure.lines.map((line) => [line.x, line.y]);
  return uPlot.join(tables, tables.map(() => [2]));
}

function number(value) {
  if (value === null || value === undefined) return "";
  const text = Math.abs(value) >= 1e6 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
  return text;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

class Figure {
  constructor(data, page) {
    this.page = page;
    this.root = element("figure");
    const caption = element("figcaption");
    const title = element("h3");
    this.link = element("a", "", data.name);
    title.append(this.link);
    this.last = element("span", "last");
    caption.append(title, element("span", "unit", data.unit), this.last);
    this.place = element("div", "chart");
    this.place.setAttribute("role", "img");
    this.place.setAttribute("aria-label", `${data.name}: the link above leads to a table`);
    this.legend = element("ul", "legend");
    this.root.append(caption, this.place, this.legend);
  }

  draw(data) {
    this.data = data;
    const table = this.page.tableOf(data.name);
    if (table) this.link.href = table;
    const first = data.lines[0];
    this.last.textContent = data.lines.length === 1 ? first.last : "";
    this.showLegend();
    if (this.plot && this.axis === this.page.axis && this.count === data.lines.length) {
      this.plot.setData(joined(data), !this.zoomed);
      return;
    }
    this.plot?.destroy();
    this.axis = this.page.axis;
    this.count = data.lines.length;
    this.zoomed = false;
    this.plot = new uPlot(this.options(), joined(data), this.place);
  }

  options() {
    const grid = { stroke: colour("--line"), width: 1 };
    const font = "11px " + getComputedStyle(document.body).fontFamily;
    const axis = { stroke: colour("--soft"), grid, ticks: { ...grid, size: 4 }, font };
    return {
      width: this.place.clientWidth || 380,
      height: 190,
      legend: { show: false },
      cursor: { sync: { key: "x" }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: { x: { time: this.page.shown === "time" } },
      axes: [
        { ...axis, size: 30, space: 60 },
        { ...axis, size: 56, values: (_, values) => values.map(number) },
      ],
      series: [{}, ...seriesOf(this.data)],
      hooks: {
        setCursor: [(plot) => this.showValues(plot.cursor.idx)],
        setSelect: [() => (this.zoomed = true)],
      },
    };
  }

  showLegend() {
    const lines = this.data.lines;
    if (lines.length === 1) {
      const text = lines[0].nan_at === null ? "" : `not finite since ${lines[0].nan_at}`;
      this.legend.replaceChildren(...(text ? [element("li", "failed-text", text)] : []));
      return;
    }
    this.values = [];
    const items = lines.map((line, n) => {
      const item = element("li");
      const key = element("span", `key k${n % COLOURS}${n < COLOURS ? "" : " dashed"}`);
      const value = element("span", "mono soft", ` ${line.last}`);
      this.values.push(value);
      item.append(key, line.label || "all", value);
      if (line.nan_at !== null) item.append(element("span", "failed-text", ` not finite since ${line.nan_at}`));
      return item;
    });
    if (this.data.hidden) items.push(element("li", "soft", `and ${this.data.hidden} more`));
    this.legend.replaceChildren(...items);
  }

  showValues(place) {
    const at = (n) => {
      const value = this.plot.data[n + 1][place];
      return value === null || value === undefined ? "" : number(value);
    };
    const isAway = place === null || place === undefined;
    if (this.data.lines.length === 1) {
      const x = isAway ? "" : this.plot.data[0][place];
      const where = this.page.shown === "time" && !isAway ? new Date(x * 1000).toLocaleString() : x;
      this.last.textContent = isAway ? this.data.lines[0].last : `${where}: ${at(0)}`;
      return;
    }
    this.values.forEach((value, n) => {
      value.textContent = ` ${isAway ? this.data.lines[n].last : at(n)}`;
    });
  }

  resize() {
    this.plot?.setSize({ width: this.place.clientWidth, height: 190 });
  }

  restyle() {
    this.count = -1;
    if (this.data) this.draw(this.data);
  }
}

function startCharts() {
  const root = document.querySelector("[data-charts]");
  if (!root || typeof uPlot === "undefined") return null;
  // A page that was exported contains the curves.
  const stored = JSON.parse(root.querySelector("script")?.textContent || "null");
  const page = { axis: root.dataset.axis || "step" };
  page.tableOf = (name) => {
    if (stored) return stored.tables;
    const url = new URL(root.dataset.charts, location.href);
    url.pathname = url.pathname.replace(/curves\.json$/, "curves");
    url.searchParams.set("name", name);
    url.searchParams.set("x", page.axis);
    return url.href;
  };
  const figures = new Map();
  let busy = false;
  let again = false;

  const load = async () => {
    const url = new URL(root.dataset.charts, location.href);
    url.searchParams.set("x", page.axis);
    const answer = await fetch(url);
    return answer.ok ? answer.json() : null;
  };
  const update = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const data = stored ? stored[page.axis] : await load();
      if (data) {
        page.shown = data.axis;
        draw(data.figures);
      }
    } catch {
      // The stream shows that there is no connection.
    }
    busy = false;
    if (again) {
      again = false;
      setTimeout(update, 1000);
    }
  };
  const draw = (shown) => {
    for (const data of shown) {
      const key = `${data.name} ${data.unit}`;
      if (!figures.has(key)) {
        const figure = new Figure(data, page);
        figures.set(key, figure);
        root.append(figure.root);
      }
      figures.get(key).draw(data);
    }
    const axes = document.querySelector("[data-axes]");
    if (axes) axes.hidden = figures.size === 0;
  };
  document.querySelector("[data-axes]")?.addEventListener("click", (event) => {
    const axis = event.target.dataset.axis;
    if (!axis) return;
    event.preventDefault();
    page.axis = axis;
    for (const each of event.currentTarget.querySelectorAll("a")) each.removeAttribute("aria-current");
    event.target.setAttribute("aria-current", "true");
    update();
  });
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    for (const figure of figures.values()) figure.resize();
  }).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of figures.values()) figure.restyle();
  });
  update();
  return { update };
}
globalThis.startCharts = startCharts;
}
