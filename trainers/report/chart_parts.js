// What charts of a report are made of: colours, numbers, lines with bands, axes. page.js follows.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const view = { axis: "step", part: 1, logX: false, logY: false, smoothing: 0, bands: true };
const shown = data.runs.map(() => true);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

const kLight = ["#2563a8", "#c2571a", "#2e8540", "#a83279", "#7a5c00", "#5b4bc4", "#0f7c8a", "#b3261e", "#5f6b7a",
                "#8a5a3c"];
const kDark = ["#6ea8e8", "#f0935a", "#6cc57f", "#e57fbd", "#d4b34a", "#a79bf5", "#57c3d1", "#f28b82", "#a9b4c2",
               "#cf9f80"];
const kAxisTitles = { step: "steps", tokens: "tokens read", seconds: "training time in seconds" };

const colour = (number) => (dark.matches ? kDark : kLight)[number % kLight.length];
const translucent = (hex, opacity) => hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
// Runs beyond the colours have dashed lines.
const dashes = (number) => [[], [6, 3], [2, 2]][Math.floor(number / kLight.length) % 3];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, parent, text, name) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (name) made.className = name;
  parent.appendChild(made);
  return made;
}

// 1234567 as 1.23M, 0.0001 as 1e-4.
function compact(value, digits = 4) {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < 1e-3) return value.toExponential(digits - 2).replace(/\.?0+e/, "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) return Number((value / unit).toPrecision(digits)) + letter;
  }
  return String(Number(value.toPrecision(digits)));
}

// Text of a tick with as many digits as tell it from the next one.
function tickText(value, index, ticks) {
  const step = ticks.length > 1 ? Math.abs(ticks[1].value - ticks[0].value) : 0;
  const digits = step > 0 && value !== 0 ? Math.ceil(Math.log10(Math.abs(value) / step)) + 1 : 3;
  return compact(value, Math.min(9, Math.max(3, digits)));
}

// Exponential moving average of the points that there are, as if there had been the first ones before.
function smoothed(values) {
  if (view.smoothing === 0) return values;
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = view.smoothing * sum + (1 - view.smoothing) * value;
    weight = view.smoothing * weight + (1 - view.smoothing);
    return sum / weight;
  });
}

// The place from which on a curve is drawn, on the axis that is chosen: in the last part of its own run.
function firstPlace(places) {
  return view.part < 1 ? (1 - view.part) * (places.at(-1) || 0) : -Infinity;
}

function points(at, values) {
  const places = at[view.axis];
  const first = firstPlace(places);
  const drawn = [];
  for (let i = 0; i < values.length; ++i) {
    const isDrawn = places[i] !== null && places[i] >= first && !(view.logX && places[i] <= 0);
    if (!isDrawn) continue;
    const value = values[i];
    drawn.push({ x: places[i], y: value === null || (view.logY && value <= 0) ? NaN : value });
  }
  return drawn;
}

// A line of means, and a band between the smallest and the largest values around it.
function lines(label, number, at, curve) {
  const shared = { borderColor: colour(number), backgroundColor: colour(number), borderDash: dashes(number) };
  const few = curve.mean.length <= 40;
  const line = { ...shared, label, data: points(at, smoothed(curve.mean)), borderWidth: 1.6, pointRadius: few ? 2 : 0,
                 pointHitRadius: 6, spanGaps: few, order: 1 };
  if (!curve.low || !view.bands) return [line];
  // Bands of many runs lie over each other.
  const opacity = Math.max(0.05, 0.25 / Math.sqrt(shown.filter((one) => one).length));
  const band = { isBand: true, label, pointRadius: 0, borderWidth: 0, order: 2,
                 backgroundColor: translucent(colour(number), opacity) };
  return [{ ...band, data: points(at, curve.low) }, { ...band, data: points(at, curve.high), fill: "-1" }, line];
}

// The nearest point of every line that is near, so that runs with other steps are read side by side.
Chart.Interaction.modes.nearestOfEach = (chart, event) => {
  const kNear = 40;  // pixels
  const items = [];
  chart.getSortedVisibleDatasetMetas().forEach((meta) => {
    if (meta.data.length === 0 || chart.data.datasets[meta.index].isBand) return;
    if (event.x < meta.data[0].x - kNear || event.x > meta.data.at(-1).x + kNear) return;
    let best = -1, distance = Infinity;
    meta.data.forEach((point, index) => {
      const away = Math.abs(point.x - event.x);
      if (away < distance && !Number.isNaN(point.y)) [best, distance] = [index, away];
    });
    if (best >= 0) items.push({ element: meta.data[best], datasetIndex: meta.index, index: best });
  });
  return items;
};

// Ends of a logarithmic axis that are not round would stand over the ticks beside them.
function keepRoundTicks(scale) {
  const isRound = ({ value }) => {
    const digit = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
    return Math.abs(digit - Math.round(digit)) < 1e-6;
  };
  const round = scale.ticks.filter(isRound);
  if (round.length > 1) scale.ticks = round;
}

function axis(title, isLog) {
  return { ...(isLog ? { afterBuildTicks: keepRoundTicks } : {}),
           type: isLog ? "logarithmic" : "linear", title: { display: title !== "", text: title, color: css("--soft") },
           grid: { color: css("--line"), borderColor: css("--line") },
           ticks: { color: css("--soft"), maxTicksLimit: 7, maxRotation: 0, callback: tickText } };
}

function options(unit, legend) {
  const isDrawn = (item, all) => !all.datasets[item.datasetIndex].isBand;
  const title = (items) => items.length ? `${kAxisTitles[view.axis]}: ${compact(items[0].parsed.x)}` : "";
  const label = (item) => `${item.dataset.label}: ${compact(item.parsed.y)}`;
  return { animation: false, parsing: false, responsive: true, maintainAspectRatio: false,
           interaction: { mode: "nearestOfEach" },
           scales: { x: axis(kAxisTitles[view.axis], view.logX), y: axis(unit, view.logY) },
           plugins: { legend: { display: legend, labels: { color: css("--text"), boxWidth: 12, filter: isDrawn } },
                      tooltip: { callbacks: { title, label } } } };
}

// Ends of an axis close to the values: a logarithmic axis would go on to the next power of ten, and one of equal values
// would have no height that means something.
function fitAxis(axis, values, isLog) {
  const there = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
  const low = there.reduce((one, other) => Math.min(one, other), Infinity);
  const high = there.reduce((one, other) => Math.max(one, other), -Infinity);
  if (low === high && low > 0) Object.assign(axis, { min: 0.9 * low, max: 1.1 * high });
  else if (isLog && low < high) Object.assign(axis, { min: low, max: high });
}

function lineChart(datasets, unit, legend) {
  const made = options(unit, legend);
  const points = datasets.flatMap((dataset) => dataset.data);
  fitAxis(made.scales.y, points.map((point) => point.y), view.logY);
  if (view.logX) fitAxis(made.scales.x, points.map((point) => point.x), true);
  return { type: "line", data: { datasets }, options: made };
}

// The mean over places, and the range of all of them.
function overPlaces(curves) {
  const fold = (values, of) => values[0].map((unused, i) => {
    const there = values.map((one) => one[i]).filter((value) => value !== null);
    return there.length === 0 ? null : of(there);
  });
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  if (curves.length === 1) return curves[0];
  return { mean: fold(curves.map((curve) => curve.mean), mean),
           low: fold(curves.map((curve) => curve.low || curve.mean), (values) => Math.min(...values)),
           high: fold(curves.map((curve) => curve.high || curve.mean), (values) => Math.max(...values)) };
}

// A heat map: a row for each place, a column for each part of the run.
function heatMap(run, places) {
  const at = run.telemetry_at[view.axis];
  const first = Math.max(0, at.findIndex((place) => place >= firstPlace(at)));
  const columns = Math.min(80, at.length - first);
  const end = (i) => first + Math.floor((i + 1) * (at.length - first) / columns) - 1;
  const ends = Array.from({ length: columns }, (unused, i) => end(i));
  const cells = [];
  places.forEach(({ name, place }, row) => ends.forEach((index, x) => {
    const value = run.telemetry[name].mean[index];
    if (value !== null) cells.push({ x, y: [row, row + 1], value, place, at: at[index] });
  }));
  const low = Math.min(...cells.map((cell) => cell.value)), high = Math.max(...cells.map((cell) => cell.value));
  const [pale, strong] = dark.matches ? [[28, 34, 43], [255, 194, 102]] : [[244, 246, 249], [138, 40, 0]];
  const shade = ({ value }) => {
    const share = high > low ? (value - low) / (high - low) : 1;
    return `rgb(${pale.map((part, i) => Math.round(part + share * (strong[i] - part))).join(",")})`;
  };
  const made = options("", false);
  made.parsing = { xAxisKey: "x", yAxisKey: "y" };
  made.interaction = { mode: "nearest", intersect: true };
  made.scales.x = { ...axis(kAxisTitles[view.axis], false), min: -0.5, max: columns - 0.5, offset: false };
  made.scales.x.ticks.callback = (x) => compact(at[ends[x]]);
  made.scales.x.afterBuildTicks = (scale) => {
    const count = Math.min(5, columns);
    const middle = (i) => Math.round((i + 0.5) * columns / count - 0.5);
    scale.ticks = Array.from({ length: count }, (unused, i) => ({ value: middle(i) }));
  };
  made.scales.y = { ...axis("", false), min: 0, max: places.length, reverse: true };
  made.scales.y.ticks = { ...made.scales.y.ticks, autoSkip: true, maxTicksLimit: 20, font: { size: 10 },
                          callback: (y) => (places[Math.floor(y)] || { place: "" }).place };
  made.scales.y.afterBuildTicks = (scale) => { scale.ticks = places.map((unused, row) => ({ value: row + 0.5 })); };
  made.plugins.title = { display: true, align: "end", color: css("--soft"), font: { size: 11, weight: "normal" },
                         padding: 2, text: `pale ${compact(low)} to strong ${compact(high)}` };
  made.plugins.tooltip.callbacks = {
    title: ([item]) => `${item.raw.place}, ${kAxisTitles[view.axis]}: ${compact(item.raw.at)}`,
    label: (item) => compact(item.raw.value) };
  return { type: "bar", options: made,
           data: { datasets: [{ data: cells, backgroundColor: cells.map(shade), barPercentage: 1,
                                categoryPercentage: 1, inflateAmount: 0.4 }] } };
}

function byPlace(run, places) {
  if (places.length > 6) return heatMap(run, places);
  const datasets = places.flatMap(({ name, place }, i) => lines(place, i, run.telemetry_at, run.telemetry[name]));
  return lineChart(datasets, "", true);
}

function bars(labels, datasets, unit, isStacked) {
  const made = options("", true);
  made.parsing = true;
  made.indexAxis = "y";
  made.interaction = { mode: "index", axis: "y" };
  made.scales = { x: { ...axis(unit, false), stacked: isStacked, beginAtZero: true },
                  y: { ...axis("", false), type: "category", stacked: isStacked } };
  made.scales.y.ticks = { color: css("--text"), autoSkip: false, font: { size: 11 } };
  made.plugins.tooltip.callbacks = { label: (item) => `${item.dataset.label}: ${compact(item.parsed.x)}` };
  return { type: "bar", data: { labels, datasets }, options: made };
}
