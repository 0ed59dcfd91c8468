"use strict";
(function () {
  const PRINTED = 690;  // pixels of a printed page's width that pictures may take
  const plots = Array.from(document.querySelectorAll(".plot"));
  const figures = new Map();  // a plot's element -> its data, with names for colours
  const drawn = new Set();
  let view = null;  // which group of traces is shown where there are several

  // --- colours ---------------------------------------------------------------------------------

  function resolve(value, colours) {
    if (typeof value === "string") {
      const name = /^@([a-z]+)@$/.exec(value);
      return name && colours[name[1]] ? colours[name[1]] : value;
    }
    if (Array.isArray(value)) return value.map((each) => resolve(each, colours));
    if (value && typeof value === "object") {
      const found = {};
      for (const key of Object.keys(value)) found[key] = resolve(value[key], colours);
      return found;
    }
    return value;
  }

  const NAMES = ["paper", "ink", "faint", "soft", "blue", "orange", "green", "red", "purple", "sky",
    "grey", "low", "high"];

  const ON_PAPER = {paper: "#ffffff", ink: "#000000", faint: "#d5d8dc", soft: "#444444",
    blue: "#0072b2", orange: "#e69f00", green: "#009e73", red: "#d55e00", purple: "#cc79a7",
    sky: "#56b4e9", grey: "#767c85", low: "#f2f6fa", high: "#6baed6"};

  function coloursNow() {
    const style = getComputedStyle(document.documentElement);
    const found = {};
    for (const name of NAMES) found[name] = style.getPropertyValue("--" + name).trim();
    return found;
  }

  // --- drawing ---------------------------------------------------------------------------------

  function prepared(plot, colours, width) {
    if (!figures.has(plot)) {
      figures.set(plot, JSON.parse(document.getElementById(plot.id + "-data").textContent));
    }
    const figure = resolve(figures.get(plot), colours);
    const narrow = (width || plot.clientWidth) < 480;
    const layout = figure.layout;
    const frame = {gridcolor: colours.faint, linecolor: colours.faint, zerolinecolor: colours.faint,
      exponentformat: "e"};
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) layout[key] = Object.assign({}, frame, layout[key]);
    }
    for (const key of ["xaxis", "yaxis"]) layout[key] = Object.assign({}, frame, layout[key]);
    const base = {
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      font: {color: colours.ink, size: narrow ? 11 : 12, family: "system-ui, sans-serif"},
      margin: {l: narrow ? 44 : 56, r: 14, t: 10, b: 44},
      hoverlabel: {bgcolor: colours.paper, bordercolor: colours.soft, font: {color: colours.ink}},
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom"},
      hovermode: "closest", autosize: true, dragmode: narrow ? false : "zoom",
    };
    figure.layout = Object.assign(base, layout);
    figure.layout.height = plot.clientHeight || parseInt(plot.style.height, 10);
    figure.layout.width = width || undefined;
    if (figure.switch && figure.switch.length) {
      const shown = view || figure.switch[0];
      for (const trace of figure.data) trace.visible = trace.meta === shown;
    }
    return figure;
  }

  // Without plotly's row of buttons, which lies over the picture; a double click undoes a zoom.
  const CONFIG = {responsive: true, displaylogo: false, displayModeBar: false};

  function draw(plot, colours, width) {
    const figure = prepared(plot, colours || coloursNow(), width);
    const act = drawn.has(plot) ? Plotly.react : Plotly.newPlot;
    drawn.add(plot);
    return act(plot, figure.data, figure.layout, CONFIG);
  }

  function redraw(which, colours, widthOf) {
    return Promise.all(which.map((plot) => draw(plot, colours, widthOf ? widthOf(plot) : 0)));
  }

  const running = new Set();
  // What is near the window comes first, the rest when there is nothing else to do.
  const waiting = plots.slice();
  const later = window.requestIdleCallback
    ? (act) => window.requestIdleCallback(act, {timeout: 500})
    : (act) => setTimeout(act, 20);

  function take(plot) {
    const place = waiting.indexOf(plot);
    if (place < 0) return Promise.resolve();
    waiting.splice(place, 1);
    // One picture that cannot be drawn must not take the others along.
    const act = new Promise((done) => done(draw(plot)))
      .catch((error) => console.error(plot.id, error))
      .finally(() => running.delete(act));
    running.add(act);
    return act;
  }

  function next() {
    if (!waiting.length) {
      Promise.all(running).then(() => { window.stockpotReady = true; });
      return;
    }
    take(waiting[0]).then(() => later(next));
  }

  const nearby = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        nearby.unobserve(entry.target);
        take(entry.target);
      }
    }
  }, {rootMargin: "300px"});
  plots.forEach((plot) => nearby.observe(plot));
  later(next);

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    redraw(Array.from(drawn));
  });

  // On paper: light, and no wider than the page.
  window.addEventListener("beforeprint", () => {
    waiting.splice(0);
    redraw(plots, ON_PAPER, (plot) => {
      const half = plot.closest("figure").classList.contains("half");
      return half ? PRINTED / 2 - 40 : PRINTED - 30;
    });
  });
  window.addEventListener("afterprint", () => {
    redraw(plots).then(next);
  });

  for (const group of document.querySelectorAll(".switch")) {
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      view = button.dataset.view;
      for (const each of document.querySelectorAll(".switch button")) {
        each.setAttribute("aria-pressed", String(each.dataset.view === view));
      }
      const parts = Array.from(drawn).filter((plot) => figures.get(plot).switch.length);
      redraw(parts);
    });
  }

  // --- tables ----------------------------------------------------------------------------------

  for (const box of document.querySelectorAll(".searchable")) {
    const rows = Array.from(box.querySelectorAll("tbody tr"));
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const input = box.querySelector("input");
    const output = box.querySelector("output");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, place) => {
        const fits = words.every((word) => texts[place].includes(word));
        row.hidden = !fits;
        shown += fits;
      });
      output.textContent = shown.toLocaleString("en") + " of " + rows.length.toLocaleString("en");
    });
  }

  function keyOf(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.key === undefined ? cell.textContent.trim() : cell.dataset.key;
    const number = Number(text.replace(/,/g, "").replace("\u2212", "-"));
    return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
  }

  for (const head of document.querySelectorAll("thead")) {
    head.addEventListener("click", (event) => {
      const cell = event.target.closest("th");
      if (!cell) return;
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of head.querySelectorAll("th")) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = head.parentElement.tBodies[0];
      const keyed = Array.from(body.rows, (row) => [keyOf(row, cell.cellIndex), row]);
      keyed.sort(([a], [b]) => {
        const alike = typeof a === typeof b;
        const order = alike ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
        return down ? -order : order;
      });
      body.append(...keyed.map(([, row]) => row));
    });
  }
})();
