// Charts that compare methods: the trade-off, and accuracy by checkpoint.

const UNTOUCHED = "none";

function methodCharts(place, methods) {
  const chosen = { group: "methods", stream: methods.streams[0] };
  const charts = make("div", {});
  const controls = make("div", { class: "controls" });
  const change = (name) => (value) => {
    chosen[name] = value;
    show();
  };
  controls.append(chooser("Stream", methods.streams, chosen.stream, change("stream")));
  const groups = Object.keys(methods.groups);
  if (groups.length > 1) controls.append(chooser("Compare", groups, chosen.group, change("group")));
  place.append(controls, charts);

  function styleOf(variant) {
    return variant === UNTOUCHED ? NEUTRAL : markStyle(methods.variants.indexOf(variant) - 1);
  }

  function show() {
    const variants = methods.groups[chosen.group];
    const heading = make("h3", {}, `Stream: ${chosen.stream}`);
    const points = methods.points[chosen.stream];
    const lines = methods.lines[chosen.stream];
    charts.replaceChildren(
      heading,
      make(
        "div",
        { class: "figures" },
        scatter(variants.filter((name) => points[name]), points),
        ranking(variants.filter((name) => points[name]), points),
        ...checkpointCharts(variants.filter((name) => lines[name]), lines),
      ),
    );
  }

  function scatter(variants, points) {
    const forgotten = (name) => 100 - points[name].forget_average[0];
    const kept = (name) => points[name].retain_average[0];
    const plot = axes({
      label: "Trade-off: forgotten against kept accuracy",
      xLabel: "100 - F Avg (forgotten, %)",
      yLabel: "R Avg (kept, %)",
      xRange: rangeOf(variants.map(forgotten), 0.12),
      yRange: rangeOf(variants.map(kept), 0.12),
      height: 340,
    });
    drawTradeOffs(plot);
    for (const name of variants) {
      const lines = [
        `${name}, ${chosen.stream}`,
        `100 - F Avg ${shown(forgotten(name))}, F Avg ${withInterval(points[name].forget_average)}`,
        `R Avg ${withInterval(points[name].retain_average)}`,
        `Trade-off ${withInterval(points[name].trade_off)}`,
        `seeds: ${points[name].seeds}`,
      ];
      const dot = target(plot.x(forgotten(name)), plot.y(kept(name)), styleOf(name), lines, true);
      dot.dataset.variant = name;
      plot.root.append(dot);
    }
    const entries = variants.map((name) => ({ name, ...styleOf(name), dash: "0 99" }));
    return figure(
      "Trade-off",
      "Mean over seeds; up and to the right is better. On a dashed curve the Trade-off is the same.",
      legend(entries),
      plot.root,
    );
  }

  function ranking(variants, points) {
    const ranked = [...variants].sort((a, b) => points[b].trade_off[0] - points[a].trade_off[0]);
    const ends = ranked.flatMap((name) => [points[name].trade_off[0], ...(points[name].trade_off[1] ?? [])]);
    const root = intervalChart({
      label: "Trade-off by method with its interval",
      xLabel: "Trade-off",
      xRange: rangeOf(ends),
      rows: ranked.map((name) => ({
        name,
        value: points[name].trade_off,
        style: styleOf(name),
        lines: [name, `Trade-off ${withInterval(points[name].trade_off)}`, `seeds: ${points[name].seeds}`],
      })),
    });
    return figure("Trade-off by method", "Mean and 95 % interval over seeds; further right is better.", root);
  }

  function checkpointCharts(variants, lines) {
    const chart = (name, title, remark) =>
      figure(
        title,
        remark,
        lineChart({
          label: title,
          yLabel: "accuracy, %",
          unit: " %",
          series: variants.map((variant) => ({
            name: variant,
            ...styleOf(variant),
            points: lines[variant].requests.map((request, n) => [request, lines[variant][name][n]]),
          })),
        }),
      );
    if (!variants.length) return [];
    return [
      chart("forget", "Accuracy on forgotten items by checkpoint", "Mean over seeds; lower is better."),
      chart("retain", "Accuracy on held-out items by checkpoint", "Mean over tasks and seeds; higher is better."),
    ];
  }

  show();
}

function withInterval([mean, interval]) {
  return interval ? `${shown(mean)} (${shown(interval[0])} to ${shown(interval[1])})` : shown(mean);
}

// Curves of equal harmonic mean: 2 x y / (x + y) = t.
function drawTradeOffs({ root, x, y, box }) {
  for (const t of [10, 20, 30, 40, 50, 60, 70, 80, 90]) {
    const points = [];
    for (let forgotten = t / 2 + 0.1; forgotten <= 100; forgotten += 0.1) {
      const kept = (t * forgotten) / (2 * forgotten - t);
      const [px, py] = [x(forgotten), y(kept)];
      if (px >= box.left && px <= box.right && py >= box.top && py <= box.bottom) points.push([px, py]);
    }
    if (points.length < 2) continue;
    const [lastX, lastY] = points[points.length - 1];
    root.append(
      draw("path", { d: points.map(([px, py], n) => `${n ? "L" : "M"}${px} ${py}`).join(""), class: "curve" }),
      draw("text", { x: lastX - 3, y: lastY - 4, "text-anchor": "end" }, String(t)),
    );
  }
}

if (DATA.methods) methodCharts(document.getElementById("methods"), DATA.methods);
