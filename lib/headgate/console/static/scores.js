// Scores over time and by checkpoint: a line of means on a band, which is the interval.
"use strict";
(() => {
  const COLOURS = ["--accent", "--good", "--warn", "--bad"];
  function shade(name, share = 100) {
    const probe = document.createElement("i");
    probe.style.color = `color-mix(in srgb, var(${name}) ${share}%, transparent)`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }
  const axis = (more) => ({ stroke: shade("--quiet"), grid: { stroke: shade("--line"), width: 1 }, ticks: { stroke: shade("--line"), width: 1 }, font: "12px system-ui", ...more });

  function draw(place) {
    const byStep = place.dataset.checkpoints !== undefined;
    const given = JSON.parse(byStep ? place.dataset.checkpoints : place.dataset.lines);
    const scored = byStep ? given.checkpoints.filter((one) => one.mean !== null) : [];
    const lines = byStep
      ? [{ model: "mean", starts: scored.map((one) => one.step), means: scored.map((one) => one.mean), lows: scored.map((one) => one.low), highs: scored.map((one) => one.high) }]
      : given.lines.filter((one) => one.starts.length);
    const xs = [...new Set(lines.flatMap((one) => one.starts))].sort((a, b) => a - b);
    const data = [xs], series = [{ label: byStep ? "step" : "from" }], bands = [];
    lines.forEach((line, number) => {
      const colour = COLOURS[number % COLOURS.length], at = new Map(line.starts.map((start, place) => [start, place]));
      const column = (values) => xs.map((x) => (at.has(x) ? values[at.get(x)] : null));
      const first = data.push(column(line.highs), column(line.lows), column(line.means)) - 3;
      const edge = { class: "edge", stroke: shade(colour, 0), spanGaps: true, points: { show: false } };
      series.push({ label: `${line.model} high`, ...edge }, { label: "low", ...edge }, { label: line.model, stroke: shade(colour), width: 1.8, spanGaps: true, points: { show: xs.length < 60, size: 5, fill: shade(colour) } });
      bands.push({ series: [first, first + 1], fill: shade(colour, 16) });
    });
    place.replaceChildren();
    const around = byStep ? 1 : given.span_s;  // otherwise a single point would have years around it
    const range = xs.length === 1 ? { range: [xs[0] - around, xs[0] + around] } : {};
    return new uPlot({ width: place.clientWidth, height: 260, scales: { x: { time: !byStep, ...range }, y: { range: [0, 1] } }, axes: [axis({}), axis({ size: 44 })], cursor: { drag: { x: true, y: false } }, series, bands }, data, place);
  }
  const plots = new Map();
  function all() {
    for (const place of document.querySelectorAll(".chart")) {
      plots.get(place)?.destroy();
      plots.set(place, draw(place));
    }
  }
  all();
  addEventListener("resize", () => plots.forEach((plot, place) => plot.setSize({ width: place.clientWidth, height: 260 })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  document.addEventListener("htmx:after:swap", () => { if ([...document.querySelectorAll(".chart")].some((place) => !plots.has(place))) all(); });
})();
