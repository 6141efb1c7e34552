// Draws the charts of a report from the JSON in #data. A chart is made when it comes into view; with #all in the
// address, or for printing, all are made at once.

const cards = [];  // { title, box, make, chart, inView }

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
  const fields = data.fields.map((chart) => [chart, (run) => {
    const curve = run.fields[chart.field];
    return curve ? [run.at, curve] : null;
  }]);
  for (const [chart, curveOf] of [...fields.slice(0, 1), ...evaluations, ...fields.slice(1)]) {
    const numbers = runsWith((run) => curveOf(run) !== null);
    if (numbers.length === 0) continue;
    addCard(parent, chart.title, chart.help, () => {
      const datasets = numbers.filter((number) => shown[number])
        .flatMap((number) => lines(data.runs[number].label, number, ...curveOf(data.runs[number])));
      return lineChart(datasets, chart.unit, false);
    });
  }
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
      element("h2", parent, part || "whole model");
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
        const curves = placesOf(run).map(({ name }) => run.telemetry[name]);
        return lines(run.label, number, run.telemetry_at, overPlaces(curves));
      });
      return lineChart(datasets, "", false);
    }, several.length > 0 ? choices : null);
  }
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
    addCard(operations, "The slowest operations", "", () => bars(names, measured.filter((number) => shown[number])
      .map((number) => ({ label: data.runs[number].label, backgroundColor: colour(number),
                          data: names.map((name) => data.runs[number].operations[name] || 0) })),
      "milliseconds a step", false));
  }
  const planned = runsWith((run) => Object.keys(run.memory).length > 0);
  if (planned.length === 0) return;
  const kinds = Object.keys(data.runs[planned[0]].memory)
    .filter((kind) => planned.some((number) => data.runs[number].memory[kind] > 0));
  addCard(document.getElementById("memory"), "Memory during a step", "", () => {
    const numbers = planned.filter((number) => shown[number]);
    const kindOf = (kind, i) => ({ label: kind, backgroundColor: colour(i),
                                   data: numbers.map((number) => data.runs[number].memory[kind] / 1048576) });
    return bars(numbers.map((number) => data.runs[number].label), kinds.map(kindOf), "MiB", true);
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
  control("part", (input) => { view.part = Number(input.value); });
  control("bands", (input) => { view.bands = input.checked; });
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
