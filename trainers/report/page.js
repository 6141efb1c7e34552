// Draws the charts of a report from the JSON in #data. A chart is made when it comes into view; with #all in the
// address, or for printing, all are made at once.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const view = { axis: "step", logX: false, logY: false, smoothing: 0 };
const shown = data.runs.map(() => true);
const cards = [];  // { box, make, chart }
const dark = window.matchMedia("(prefers-color-scheme: dark)");

const kLight = ["#2563a8", "#c2571a", "#2e8540", "#a83279", "#7a5c00", "#5b4bc4", "#0f7c8a", "#b3261e", "#5f6b7a", "#8a5a3c"];
const kDark = ["#6ea8e8", "#f0935a", "#6cc57f", "#e57fbd", "#d4b34a", "#a79bf5", "#57c3d1", "#f28b82", "#a9b4c2", "#cf9f80"];
const kAxisTitles = { step: "steps", tokens: "tokens read", seconds: "training time in seconds" };

const colour = (number) => (dark.matches ? kDark : kLight)[number % kLight.length];
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
function compact(value) {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) return Number((value / unit).toPrecision(3)) + letter;
  }
  return String(Number(value.toPrecision(4)));
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

function points(at, values) {
  const places = at[view.axis];
  const drawn = [];
  for (let i = 0; i < values.length; ++i) {
    const isDrawn = places[i] !== null && !(view.logX && places[i] <= 0);
    if (!isDrawn) continue;
    const value = values[i];
    drawn.push({ x: places[i], y: value === null || (view.logY && value <= 0) ? NaN : value });
  }
  return drawn;
}

// A line of means, and a band between the smallest and the largest values around it.
function lines(label, number, at, curve) {
  const shared = { borderColor: colour(number), backgroundColor: colour(number), borderDash: dashes(number) };
  const few = curve.mean.length <= 60;
  const line = { ...shared, label, data: points(at, smoothed(curve.mean)), borderWidth: 1.6, pointRadius: few ? 2 : 0,
                 pointHitRadius: 6, spanGaps: few, order: 1 };
  if (!curve.low) return [line];
  const band = { isBand: true, label, pointRadius: 0, borderWidth: 0, order: 2, backgroundColor: colour(number) + "33" };
  return [{ ...band, data: points(at, curve.low) }, { ...band, data: points(at, curve.high), fill: "-1" }, line];
}

// The nearest point of every line, so that runs with other steps are read side by side.
Chart.Interaction.modes.nearestOfEach = (chart, event) => {
  const items = [];
  chart.getSortedVisibleDatasetMetas().forEach((meta) => {
    if (chart.data.datasets[meta.index].isBand) return;
    let best = -1, distance = Infinity;
    meta.data.forEach((point, index) => {
      const away = Math.abs(point.x - event.x);
      if (away < distance && !Number.isNaN(point.y)) [best, distance] = [index, away];
    });
    if (best >= 0 && distance < 40) items.push({ element: meta.data[best], datasetIndex: meta.index, index: best });
  });
  return items;
};

function axis(title, isLog) {
  return { type: isLog ? "logarithmic" : "linear", title: { display: title !== "", text: title, color: css("--soft") },
           grid: { color: css("--line"), borderColor: css("--line") },
           ticks: { color: css("--soft"), maxTicksLimit: 7, maxRotation: 0, callback: compact } };
}

function options(unit, legend) {
  return { animation: false, parsing: false, responsive: true, maintainAspectRatio: false,
           interaction: { mode: "nearestOfEach" },
           scales: { x: axis(kAxisTitles[view.axis], view.logX), y: axis(unit, view.logY) },
           plugins: { legend: { display: legend, labels: { color: css("--text"), boxWidth: 12,
                                                           filter: (item, all) => !all.datasets[item.datasetIndex].isBand } },
                      tooltip: { callbacks: { title: (items) => items.length ? `${kAxisTitles[view.axis]}: ${compact(items[0].parsed.x)}` : "",
                                              label: (item) => `${item.dataset.label}: ${compact(item.parsed.y)}` } } } };
}

function tell() {
  document.body.dataset.charts = `${cards.filter((card) => card.chart).length} of ${cards.length}`;
}

function draw(card) {
  if (card.chart) return;
  const config = card.make();
  card.box.parentElement.hidden = config === null;
  if (config === null) return;
  const canvas = element("canvas", card.box);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", card.title);
  card.chart = new Chart(canvas, config);
  tell();
}

const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
  const card = cards.find((one) => one.box === entry.target);
  card.inView = entry.isIntersecting;
  if (entry.isIntersecting) draw(card);
}), { rootMargin: "300px" });

function drawAll() {
  cards.forEach(draw);
}

function drawAgain(card) {
  if (card.chart) card.chart.destroy();
  card.chart = null;
  card.box.replaceChildren();
  card.box.parentElement.hidden = false;
  if (card.inView || location.hash === "#all") draw(card);
}

// `make` returns the configuration of a chart, or null where the runs that are shown have nothing for it.
function addCard(parent, title, help, make, choices) {
  const frame = element("div", parent, "", "card");
  element("h3", frame, title);
  if (help) element("p", frame, help);
  const card = { title, chart: null, inView: false };
  if (choices) {
    const select = element("select", frame);
    select.setAttribute("aria-label", "what is drawn");
    choices.forEach((choice) => { element("option", select, choice.title).value = choice.value; });
    select.value = choices.chosen;
    select.addEventListener("change", () => drawAgain(card));
    card.select = select;
  }
  card.box = element("div", frame, "", "box");
  card.make = () => make(card);
  cards.push(card);
  watcher.observe(card.box);
}

const runsWith = (has) => data.runs.map((run, number) => number).filter((number) => has(data.runs[number]));

function addFieldCharts() {
  const parent = document.getElementById("fields");
  const evaluations = data.evaluations.map((chart) => [chart, (run) => {
    const split = run.evaluations[chart.split];
    return split && split[chart.field] ? [split.at, { mean: split[chart.field] }] : null;
  }]);
  const fields = data.fields.map((chart) => [chart, (run) => run.fields[chart.field] ? [run.at, run.fields[chart.field]] : null]);
  for (const [chart, curveOf] of [...fields.slice(0, 1), ...evaluations, ...fields.slice(1)]) {
    const numbers = runsWith((run) => curveOf(run) !== null);
    if (numbers.length === 0) continue;
    addCard(parent, chart.title, chart.help, () => {
      const datasets = numbers.filter((number) => shown[number])
        .flatMap((number) => lines(data.runs[number].label, number, ...curveOf(data.runs[number])));
      return { type: "line", data: { datasets }, options: options(chart.unit, false) };
    });
  }
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
  const columns = Math.min(80, run.telemetry_at.step.length);
  const at = run.telemetry_at[view.axis];
  const ends = Array.from({ length: columns }, (unused, i) => Math.floor((i + 1) * at.length / columns) - 1);
  const cells = [];
  places.forEach(({ name, place }, row) => ends.forEach((end, x) => {
    const value = run.telemetry[name].mean[end];
    if (value !== null) cells.push({ x, y: [row, row + 1], value, place, end });
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
  made.scales.x.ticks.callback = (x) => Number.isInteger(x) && x < columns ? compact(at[ends[x]]) : "";
  made.scales.y = { ...axis("", false), min: 0, max: places.length, reverse: true };
  made.scales.y.ticks = { ...made.scales.y.ticks, autoSkip: true, maxTicksLimit: 20, font: { size: 10 },
                          callback: (y) => (places[Math.floor(y)] || { place: "" }).place };
  made.scales.y.afterBuildTicks = (scale) => { scale.ticks = places.map((unused, row) => ({ value: row + 0.5 })); };
  made.plugins.title = { display: true, align: "end", color: css("--soft"), font: { size: 11, weight: "normal" }, padding: 2,
                         text: `pale ${compact(low)} to strong ${compact(high)}` };
  made.plugins.tooltip.callbacks = { title: ([item]) => `${item.raw.place}, ${kAxisTitles[view.axis]}: ${compact(at[item.raw.end])}`,
                                     label: (item) => compact(item.raw.value) };
  return { type: "bar", options: made,
           data: { datasets: [{ data: cells, backgroundColor: cells.map(shade), barPercentage: 1, categoryPercentage: 1,
                                inflateAmount: 0.4 }] } };
}

function byPlace(run, places) {
  if (places.length > 6) return heatMap(run, places);
  const datasets = places.flatMap(({ name, place }, i) => lines(place, i, run.telemetry_at, run.telemetry[name]));
  return { type: "line", data: { datasets }, options: options("", true) };
}

function addTelemetryCharts() {
  const parent = document.getElementById("telemetry");
  let part = null, charts = null;
  for (const chart of data.telemetry) {
    const placesOf = (run) => chart.places.filter(({ name }) => run.telemetry[name]);
    const numbers = runsWith((run) => placesOf(run).length > 0);
    if (charts === null) element("h2", parent, "Telemetry of mechanisms", "part");
    if (chart.part !== part) {
      part = chart.part;
      if (part) element("h2", parent, part);
      charts = element("div", parent, "", "charts");
    }
    const several = numbers.filter((number) => placesOf(data.runs[number]).length > 1);
    const choices = several.map((number) => ({ value: String(number), title: `${data.runs[number].label}, by place` }));
    choices.unshift({ value: "all", title: "runs, mean over places and their range" });
    choices.chosen = numbers.length === 1 && several.length === 1 ? String(numbers[0]) : "all";
    const title = part ? chart.title.slice(part.length + 1) : chart.title;
    addCard(charts, title, chart.help, (card) => {
      if (card.select && card.select.value !== "all") {
        const run = data.runs[Number(card.select.value)];
        return byPlace(run, placesOf(run));
      }
      const datasets = numbers.filter((number) => shown[number]).flatMap((number) => {
        const run = data.runs[number];
        return lines(run.label, number, run.telemetry_at, overPlaces(placesOf(run).map(({ name }) => run.telemetry[name])));
      });
      return { type: "line", data: { datasets }, options: options("", false) };
    }, several.length > 0 ? choices : null);
  }
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

function addBarCharts() {
  const operations = document.getElementById("operations");
  const measured = runsWith((run) => Object.keys(run.operations).length > 0);
  if (operations && measured.length > 0) {
    const largest = {};
    measured.forEach((number) => Object.entries(data.runs[number].operations).forEach(([name, ms]) => {
      largest[name] = Math.max(largest[name] || 0, ms);
    }));
    const names = Object.keys(largest).sort((one, other) => largest[other] - largest[one]).slice(0, 12);
    addCard(operations, "The slowest operations", "", () => bars(names, measured.filter((number) => shown[number]).map((number) => ({
      label: data.runs[number].label, backgroundColor: colour(number),
      data: names.map((name) => data.runs[number].operations[name] || 0) })), "milliseconds a step", false));
  }
  const planned = runsWith((run) => Object.keys(run.memory).length > 0);
  if (planned.length === 0) return;
  const kinds = Object.keys(data.runs[planned[0]].memory)
    .filter((kind) => planned.some((number) => data.runs[number].memory[kind] > 0));
  addCard(document.getElementById("memory"), "Memory during a step", "", () => {
    const numbers = planned.filter((number) => shown[number]);
    return bars(numbers.map((number) => data.runs[number].label), kinds.map((kind, i) => ({
      label: kind, backgroundColor: colour(i), data: numbers.map((number) => data.runs[number].memory[kind] / 1048576) })), "MiB", true);
  });
}

function addControls() {
  const again = () => cards.forEach(drawAgain);
  const swatches = data.runs.map((run, number) => {
    const label = element("label", document.getElementById("runs"));
    const box = element("input", label);
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { shown[number] = box.checked; again(); });
    const swatch = element("i", label);
    label.append(run.label);
    return swatch;
  });
  const paint = () => swatches.forEach((swatch, number) => { swatch.style.background = colour(number); });
  paint();
  dark.addEventListener("change", () => { paint(); again(); });
  const control = (id, set) => {
    const input = document.getElementById(id);
    input.addEventListener("change", () => { set(input); again(); });
  };
  control("axis", (input) => { view.axis = input.value; });
  control("log-x", (input) => { view.logX = input.checked; });
  control("log-y", (input) => { view.logY = input.checked; });
  control("smoothing", (input) => { view.smoothing = Number(input.value); });
}

addControls();
addFieldCharts();
addTelemetryCharts();
addBarCharts();
tell();
if (location.hash === "#all") drawAll();
window.addEventListener("hashchange", () => { if (location.hash === "#all") drawAll(); });
window.addEventListener("beforeprint", drawAll);
