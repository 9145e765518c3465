// Axes, lines and points.

// Okabe and Ito's colours, which colour-blind readers can tell apart; shapes tell them apart too.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
const NEUTRAL = { colour: "#808890", shape: "circle", dash: "5 4" };

function markStyle(position) {
  return { colour: COLOURS[position % COLOURS.length], shape: SHAPES[position % SHAPES.length] };
}

function mark(x, y, { colour, shape, hollow }, size = 5) {
  const paint = hollow
    ? { fill: "var(--paper)", stroke: colour, "stroke-width": 1.5 }
    : { fill: colour, stroke: "none" };
  const path = {
    circle: `M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0z`,
    square: `M${x - size} ${y - size}h${2 * size}v${2 * size}h${-2 * size}z`,
    triangle: `M${x} ${y - 1.2 * size}L${x + 1.2 * size} ${y + size}H${x - 1.2 * size}z`,
    diamond: `M${x} ${y - 1.35 * size}L${x + 1.35 * size} ${y}L${x} ${y + 1.35 * size}L${x - 1.35 * size} ${y}z`,
    cross: `M${x - size} ${y - size}L${x + size} ${y + size}M${x + size} ${y - size}L${x - size} ${y + size}`,
  }[shape];
  const crossed = { fill: "none", stroke: colour, "stroke-width": 3 };
  return draw("path", { d: path, class: "mark", ...(shape === "cross" ? crossed : paint) });
}

// A mark in a larger invisible disc, so that it is easy to point at.
function target(x, y, style, lines, focusable = false) {
  const group = draw("g", { class: "target" }, draw("circle", { cx: x, cy: y, r: 11, class: "hit" }), mark(x, y, style));
  explain(group, lines, focusable);
  return group;
}

function legend(entries) {
  const items = entries.map(({ name, ...style }) =>
    make(
      "li",
      {},
      draw("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, stroke(`M1 7H25`, style), mark(13, 7, style, 4)),
      name,
    ),
  );
  return make("ul", { class: "legend" }, ...items);
}

function stroke(path, { colour, dash }) {
  return draw("path", { d: path, class: "line", stroke: colour, ...(dash ? { "stroke-dasharray": dash } : {}) });
}

function ticksOf(low, high, count = 5) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) ticks.push(n * step);
  return ticks.map((tick) => Number(tick.toPrecision(10)));
}

function rangeOf(values, margin = 0.06) {
  const known = values.filter((value) => typeof value === "number");
  if (!known.length) return [0, 1];
  const low = Math.min(...known);
  const high = Math.max(...known);
  const room = (high - low || Math.abs(high) || 1) * margin;
  // Counts, losses and accuracies are never below 0.
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

// A narrow screen gets narrow plots, not wide ones with letters too small to read.
function plotWidth() {
  return matchMedia("(max-width: 600px)").matches ? 370 : 560;
}

// An empty plot: its SVG, and where values lie in it.
function axes({ label, xLabel, yLabel, xRange, yRange, width = plotWidth(), height = 300, wholeX = false }) {
  const box = { left: 66, right: width - 12, top: 12, bottom: height - 42 };
  const at = ([low, high], from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  const x = at(xRange, box.left, box.right);
  const y = at(yRange, box.bottom, box.top);
  const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "group", "aria-label": label });
  for (const tick of ticksOf(...yRange)) {
    root.append(
      draw("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick), class: "grid" }),
      draw("text", { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" }, tickText(tick)),
    );
  }
  for (const tick of ticksOf(...xRange).filter((value) => !wholeX || Number.isInteger(value))) {
    root.append(
      draw("line", { x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 5, class: "axis" }),
      draw("text", { x: x(tick), y: box.bottom + 19, "text-anchor": "middle" }, tickText(tick)),
    );
  }
  const middle = (box.top + box.bottom) / 2;
  root.append(
    draw("path", { d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`, class: "axis", fill: "none" }),
    draw("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
    draw("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, yLabel),
  );
  return { root, x, y, box };
}

function tickText(value) {
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(0);
  return value.toLocaleString("en", { maximumFractionDigits: 4 });
}

// Series are {name, colour, shape, points: [[x, y], ...]}; points without a y are left out.
function lineChart({ series, unit = "", digits = 1, xLabel = "request", ...options }) {
  const points = series.flatMap((entry) => entry.points);
  const plot = axes({
    xRange: rangeOf(points.map(([x]) => x), 0.02),
    yRange: rangeOf(points.map(([, y]) => y)),
    xLabel,
    wholeX: true,
    ...options,
  });
  const marks = [];
  for (const { name, points: all, ...style } of series) {
    const known = all.filter(([, y]) => typeof y === "number");
    const path = known.map(([x, y], n) => `${n ? "L" : "M"}${plot.x(x)} ${plot.y(y)}`).join("");
    if (path) plot.root.append(stroke(path, style));
    for (const [x, y] of known) {
      const size = known.length > 30 ? 2 : 4;
      const lines = [name, `${xLabel} ${x}: ${y.toFixed(digits)}${unit}`];
      const group = draw("g", {}, draw("circle", { cx: plot.x(x), cy: plot.y(y), r: 8, class: "hit" }), mark(plot.x(x), plot.y(y), style, size));
      explain(group, lines);
      marks.push(group);
    }
  }
  // Above all lines, so that no line hides a mark from the pointer.
  plot.root.append(...marks);
  return make("div", {}, legend(series), plot.root);
}

// Rows are {name, value: [mean, [low, high] or null], style, lines}.
function intervalChart({ label, xLabel, xRange, rows }) {
  const width = plotWidth();
  const [left, right, step] = [150, width - 14, 30];
  const bottom = 10 + rows.length * step;
  const x = (value) => left + ((value - xRange[0]) / (xRange[1] - xRange[0])) * (right - left);
  const root = draw("svg", { viewBox: `0 0 ${width} ${bottom + 42}`, class: "plot", role: "group", "aria-label": label });
  for (const tick of ticksOf(...xRange)) {
    root.append(
      draw("line", { x1: x(tick), x2: x(tick), y1: 6, y2: bottom, class: "grid" }),
      draw("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, tickText(tick)),
    );
  }
  root.append(draw("text", { x: (left + right) / 2, y: bottom + 37, "text-anchor": "middle" }, xLabel));
  rows.forEach(({ name, value: [mean, interval], style, lines }, row) => {
    const y = 10 + (row + 0.5) * step;
    const bar = interval ? stroke(`M${x(interval[0])} ${y}H${x(interval[1])}`, { colour: style.colour }) : null;
    const group = draw(
      "g",
      { class: "target" },
      draw("rect", { x: left, y: y - step / 2, width: right - left, height: step, class: "hit" }),
      bar,
      mark(x(mean), y, style),
    );
    explain(group, lines);
    root.append(draw("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, name), group);
  });
  return root;
}
