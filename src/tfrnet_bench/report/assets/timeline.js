// The requests of a cell: losses before and after, accepted or rejected, and why.

const ACCEPTED = { colour: "#0072b2", shape: "circle" };
const REJECTED = { colour: "#d55e00", shape: "cross" };
const BEFORE = { colour: "#808890", shape: "circle", hollow: true };

function timeline(cell) {
  const columns = cell.requests;
  if (!columns) return make("p", { class: "note" }, "No request has been made.");
  const requests = columns.id.map((_, n) =>
    Object.fromEntries([["number", n + 1], ...Object.entries(columns).map(([name, values]) => [name, values[n]])]),
  );
  const heldOut = requests.filter((request) => typeof request.holdout_loss_after === "number");
  const applied = requests.filter((request) => request.outcome === "accepted");
  const undone = requests.filter((request) => request.undone).length;
  // Without a guard nothing was accepted, only applied.
  const word = applied.length ? applied[0].verdict : "accepted";
  const counted = `${applied.length - undone} ${word}, ${requests.length - applied.length} rejected`;
  return make(
    "div",
    { id: "timeline" },
    make("h3", {}, `Requests: ${counted}${undone ? `, ${undone} undone since` : ""}`),
    legend([
      { name: "before the request", ...BEFORE, dash: "0 99" },
      { name: `after, ${word}`, ...ACCEPTED, dash: "0 99" },
      { name: "tried, rejected (nothing changed)", ...REJECTED, dash: "0 99" },
    ]),
    make(
      "div",
      { class: "figures" },
      lossChart(requests, "forget_loss", "Loss on the request's examples"),
      lossChart(requests, "guard_loss", "Loss on the guard examples"),
      ...(heldOut.length ? [lossChart(heldOut, "holdout_loss", "Loss on the hold-out data")] : []),
    ),
    requestTable(requests),
  );
}

function lossChart(requests, name, title) {
  const before = (request) => request[`${name}_before`];
  const after = (request) => request[`${name}_after`];
  const plot = axes({
    label: title,
    xLabel: "request",
    yLabel: "loss",
    xRange: [0.5, requests.at(-1).number + 0.5],
    yRange: rangeOf(requests.flatMap((request) => [before(request), after(request)])),
    height: 260,
    wholeX: true,
  });
  // A loss that is not finite stands at the upper edge.
  const height = (loss) => (typeof loss === "number" ? plot.y(loss) : plot.box.top);
  for (const request of requests) {
    const style = request.outcome === "accepted" ? ACCEPTED : REJECTED;
    const x = plot.x(request.number);
    const group = draw(
      "g",
      { class: "target" },
      draw("rect", { x: x - 7, width: 14, y: plot.box.top, height: plot.box.bottom - plot.box.top, class: "hit" }),
      stroke(`M${x} ${height(before(request))}V${height(after(request))}`, { colour: style.colour }),
      mark(x, height(before(request)), BEFORE, 3.5),
      mark(x, height(after(request)), style, 4),
    );
    explain(group, requestLines(request));
    plot.root.append(group);
  }
  return figure(title, "", plot.root);
}

function requestLines(request) {
  return [
    `${request.number}. ${request.id}: ${outcomeOf(request)}`,
    request.reason,
    `forget loss ${change(request, "forget_loss")}`,
    `guard loss ${change(request, "guard_loss")}`,
    request.guard_groups ? `guard by group: ${request.guard_groups}` : "",
    request.mask ? `mask changed by ${shown(100 * request.mask.mean_change, 2)} % on average, ${shown(100 * request.mask.largest_change, 1)} % at most` : "",
  ];
}

function outcomeOf(request) {
  return request.undone ? `${request.verdict}, undone since` : request.verdict;
}

function change(request, name) {
  return `${shownLoss(request[`${name}_before`])} → ${shownLoss(request[`${name}_after`])}`;
}

function requestTable(requests) {
  const hasHoldout = requests.some((request) => typeof request.holdout_loss_after === "number");
  // Results of before have no figures of the mask's strength, but for the dormant channels.
  const strength = (name, factor = 1) => (request) => request.mask ? factor * request.mask[name] : null;
  const maskColumns = [
    ...(requests.some((request) => request.mask)
      ? [
          ["Mean change %", strength("mean_change", 100), 2],
          ["Largest change %", strength("largest_change", 100), 1],
          ["Changed > 1 %", strength("changed_1_percent"), 0],
          ["> 10 %", strength("changed_10_percent"), 0],
          ["> 50 %", strength("changed_50_percent"), 0],
        ]
      : []),
    ...(requests.some((request) => typeof request.dormant === "number") ? [["Dormant", (request) => request.dormant, 0]] : []),
  ];
  const columns = [
    ["#", (request) => request.number, 0],
    ["Request", (request) => request.id],
    ["Outcome", outcomeOf],
    ["Forget loss", (request) => request.forget_loss_after, 3, (request) => change(request, "forget_loss")],
    ["Guard loss", (request) => request.guard_loss_after, 3, (request) => change(request, "guard_loss")],
    ...(requests.some((request) => request.guard_groups) ? [["Guard by group", (request) => request.guard_groups]] : []),
    ...(hasHoldout ? [["Hold-out loss", (request) => request.holdout_loss_after, 3, (request) => change(request, "holdout_loss")]] : []),
    ...(requests.some((request) => request.wordings) ? [["Given in", (request) => request.wordings]] : []),
    ...maskColumns,
    ["Attempts", (request) => request.attempts, 0],
    ["Seconds", (request) => request.seconds, 2],
    ["Reason", (request) => request.reason],
  ];
  return buildTable("Requests", columns, requests, (request) => (request.outcome === "accepted" ? "" : "rejected"));
}
