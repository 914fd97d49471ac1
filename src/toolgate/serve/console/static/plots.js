// Plots: each figure[data-plot] holds a table with its data; this draws it with uPlot and keeps the table for those who want it.
// Kinds: lines, stacked (areas on one another), bars (on one another). Moments are those of the table, and are written in UTC.
"use strict";
(() => {
  const HEIGHT = 200, LOW_HEIGHT = 120;
  const heightOf = (figure) => figure.closest(".low") ? LOW_HEIGHT : HEIGHT;
  const DASHES = [[], [7, 4], [2, 3]];
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const DAY = 86400;
  const chosen = new Map(); // what a person has switched, by figure: it outlives a figure that is loaded again
  const drawn = new Map();
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // -- what is written at axes and in tooltips
  const short = (value) => value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value.toLocaleString("en");
  const written = {
    ms: (value) => value >= 6e4 ? `${+(value / 6e4).toFixed(1)} min` : value >= 1e3 ? `${+(value / 1e3).toFixed(2)} s` : `${+value.toPrecision(3)} ms`,
    usd: (value) => value >= 1000 ? `$ ${short(Math.round(value))}` : value === 0 ? "$ 0" : value >= 0.1 ? `$ ${value.toFixed(2)}` : `$ ${+value.toPrecision(2)}`,
    "%": (value) => `${+value.toFixed(1)} %`,
  };
  const format = (value, unit) => value == null ? "—" : written[unit] ? written[unit](value) : `${short(+value.toPrecision(6))}${unit ? ` ${unit}` : ""}`;
  const two = (number) => String(number).padStart(2, "0");
  const day = (at) => `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;
  const clock = (at) => `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
  const moment = (seconds, step) => {
    const at = new Date(seconds * 1000);
    return step >= DAY ? `${day(at)} ${at.getUTCFullYear()}` : `${day(at)} ${clock(at)} UTC`;
  };
  const ticks = (plot, splits, axis, space, step) => splits.map((seconds) => {
    const at = new Date(seconds * 1000);
    return step >= DAY || (at.getUTCHours() === 0 && at.getUTCMinutes() === 0) ? day(at) : step < 60 ? `${clock(at)}:${two(at.getUTCSeconds())}` : clock(at);
  });

  // -- the table's data
  const read = (figure) => {
    const [, ...heads] = figure.querySelectorAll("thead th");
    const rows = [...figure.querySelectorAll("tbody tr")];
    const xs = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
    const series = heads.map((head, at) => ({
      name: head.textContent.trim(),
      tone: head.dataset.tone,
      dash: DASHES[at % DASHES.length],
      values: rows.map((row) => { const value = row.cells[at + 1].dataset.value; return value === "" || value === undefined ? null : Number(value); }),
    }));
    const gaps = xs.slice(1).map((x, at) => x - xs[at]);
    return { xs, series, step: Number(figure.dataset.step) || (gaps.length ? Math.min(...gaps) : 3600) };
  };
  const stack = (lists) => {
    const sums = [];
    return lists.map((values) => values.map((value, at) => (sums[at] = (sums[at] || 0) + (value || 0))));
  };

  const alone = (values) => [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null); // no line goes through these

  // -- one drawing
  const options = (figure, data, shown, width) => {
    const kind = figure.dataset.plot;
    const unit = figure.dataset.unit || "";
    const stacked = kind !== "lines";
    const pad = kind === "bars" || data.xs.length === 1 ? data.step / 2 : 0;
    const axis = { stroke: colour("muted"), font: "12px system-ui, sans-serif", grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
    const series = shown.map((one) => {
      const stroke = colour(one.tone);
      return {
        label: one.name, stroke, width: stacked ? 1 : 2, spanGaps: false,
        dash: stacked ? [] : one.dash,
        fill: kind === "bars" ? stroke : kind === "stacked" ? `${stroke}55` : undefined,
        paths: kind === "bars" ? uPlot.paths.bars({ size: [0.72, 48], radius: 0.08 }) : undefined,
        points: { show: false, size: 8, fill: stroke, filter: (plot, which) => kind === "bars" ? null : alone(plot.data[which]) },
      };
    });
    if (stacked) series.reverse(); // the highest is drawn first, the others over it
    return {
      width, height: heightOf(figure), ms: 1e-3, series: [{}, ...series], legend: { show: false }, padding: [10, 22, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: {
        x: { time: true, range: (plot, low, high) => [low - pad, high + pad] },
        y: { range: (plot, low, high) => unit === "%" ? [0, 106] : [0, high > 0 ? uPlot.rangeNum(0, high, 0.1, true)[1] : 1] },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 28, gap: 6, space: 56, values: ticks, incrs: data.step >= DAY ? [1, 2, 7, 14, 30, 91].map((days) => days * DAY) : undefined },
        { ...axis, gap: 6, space: heightOf(figure) === LOW_HEIGHT ? 24 : 36, size: (plot, values) => 14 + Math.max(24, ...(values || []).map((value) => value.length * 6.6)), values: (plot, splits) => splits.map((value) => format(value, unit)), incrs: unit === "" ? [1, 2, 5].flatMap((one) => [...Array(10).keys()].map((ten) => one * 10 ** ten)).sort((a, b) => a - b) : undefined },
      ],
      cursor: {
        y: false, drag: { x: "brush" in figure.dataset, y: false, setScale: false },
        points: { show: !stacked, size: 7 },
      },
      hooks: {
        setCursor: [(plot) => tip(figure, plot, data, shown, unit)],
        setSelect: [(plot) => brush(figure, plot, data)],
      },
    };
  };
  const tip = (figure, plot, data, shown, unit) => {
    const box = plot.over.querySelector(".plot-tip") || plot.over.appendChild(make("div", { class: "plot-tip", "aria-hidden": "true" }));
    const at = plot.cursor.idx;
    box.hidden = at == null || plot.cursor.left < 0;
    if (box.hidden) return;
    const line = (name, value, tone) => {
      const mark = make("i", { class: "swatch" });
      if (tone) mark.style.background = colour(tone);
      return make("div", {}, ...(tone ? [mark] : []), make("span", {}, name), make("b", {}, value));
    };
    const values = shown.map((one) => one.values[at]);
    const sum = figure.dataset.plot !== "lines" && shown.length > 1 ? [line("together", format(values.reduce((all, one) => all + (one || 0), 0), unit))] : [];
    box.replaceChildren(make("p", {}, moment(data.xs[at], data.step)), ...shown.map((one, which) => line(one.name, format(values[which], unit), one.tone)), ...sum);
    const left = plot.valToPos(data.xs[at], "x");
    const flip = left > plot.over.clientWidth / 2;
    box.style.left = flip ? "" : `${left + 12}px`;
    box.style.right = flip ? `${plot.over.clientWidth - left + 12}px` : "";
  };
  const brush = (figure, plot, data) => { // what is drawn at a moment is of the time from there to the next: all of that is meant
    if (plot.select.width < 4) return;
    const [low, high] = [plot.select.left, plot.select.left + plot.select.width].map((x) => plot.posToVal(x, "x"));
    const far = (x) => Math.abs(x - (low + high) / 2);
    const within = data.xs.filter((x) => x >= low && x <= high);
    const drawn = within.length ? within : [data.xs.reduce((best, x) => far(x) < far(best) ? x : best)];
    const at = (seconds) => new Date(seconds * 1000).toISOString().replace(".000", "");
    const url = new URL(figure.dataset.brush || location.href, location.href);
    url.searchParams.set("since", at(drawn[0]));
    url.searchParams.set("until", at(drawn.at(-1) + data.step));
    url.searchParams.delete("cursor");
    location.assign(url);
  };

  // -- one figure
  const draw = (figure) => {
    drawn.get(figure)?.plot?.destroy();
    const data = read(figure);
    const state = chosen.get(figure.id) || { off: new Set(), table: false };
    chosen.set(figure.id, state);
    const canvas = figure.querySelector(".plot-canvas");
    figure.classList.toggle("as-table", state.table);
    figure.querySelector(".plot-table").tabIndex = state.table ? 0 : -1;
    const shown = data.series.filter((one) => !state.off.has(one.name));
    const lists = shown.map((one) => one.values);
    const empty = (values, which) => values.map((value, at) => figure.dataset.plot === "bars" && !lists[which][at] ? null : value); // a bar of nothing is no line
    const rows = figure.dataset.plot === "lines" ? lists : stack(lists).map(empty).reverse();
    const width = canvas.clientWidth;
    drawn.get(figure).width = width;
    drawn.get(figure).table = figure.querySelector("table").innerHTML;
    drawn.get(figure).plot = state.table || !width ? null : new uPlot(options(figure, data, shown, width), [data.xs, ...rows], canvas);
    legend(figure, data, state);
  };
  const legend = (figure, data, state) => {
    const row = figure.querySelector(".plot-legend");
    const focused = [...row.children].indexOf(document.activeElement);
    const buttons = data.series.map((one) => {
      const mark = make("i", { class: "swatch" });
      mark.style.background = colour(one.tone);
      const button = make("button", { type: "button", "aria-pressed": String(!state.off.has(one.name)) }, mark, one.name);
      button.onclick = () => {
        if (!state.off.delete(one.name)) state.off.add(one.name);
        draw(figure);
      };
      return button;
    });
    const table = make("button", { type: "button", class: "plot-switch", "aria-label": state.table ? "Show as plot" : "Show as table" }, state.table ? "Plot" : "Table");
    table.onclick = () => { state.table = !state.table; draw(figure); };
    row.replaceChildren(...(state.table ? [] : buttons), table);
    if (focused >= 0) (row.children[Math.min(focused, row.children.length - 1)] || table).focus();
  };
  const begin = (figure) => {
    const canvas = make("div", { class: "plot-canvas", "aria-hidden": "true" });
    figure.append(canvas, make("div", { class: "plot-legend" }));
    drawn.set(figure, { plot: null, width: 0 });
    draw(figure);
    const sizes = new ResizeObserver(() => {
      const one = drawn.get(figure);
      if (!figure.isConnected || !one) { sizes.disconnect(); one?.plot?.destroy(); drawn.delete(figure); return; }
      if (!canvas.clientWidth || canvas.clientWidth === one.width) return;
      one.width = canvas.clientWidth;
      if (one.plot) one.plot.setSize({ width: one.width, height: heightOf(figure) }); else draw(figure);
    });
    sizes.observe(canvas);
  };
  const find = () => {
    for (const figure of drawn.keys()) if (!figure.isConnected) { drawn.get(figure).plot?.destroy(); drawn.delete(figure); }
    for (const figure of document.querySelectorAll("figure[data-plot]"))
      if (!drawn.has(figure)) begin(figure); else if (drawn.get(figure).table !== figure.querySelector("table").innerHTML) draw(figure);
  };
  const again = () => { for (const figure of drawn.keys()) if (figure.isConnected) draw(figure); };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  document.addEventListener("htmx:load", find);
  document.addEventListener("toolgate:part", find);
  find();
})();
