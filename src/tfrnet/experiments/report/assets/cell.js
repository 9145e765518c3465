// One chosen cell: its requests, its charts, its channels, its texts.

const LEVELS = ["kind", "stream", "variant", "seed"];
const ACCEPTED = { colour: "#0072b2", shape: "circle" };
const REJECTED = { colour: "#d55e00", shape: "cross" };
const BEFORE = { colour: "#808890", shape: "circle", hollow: true };
const CHANNEL_COLOURS = { suppressed: "#e69f00", dormant: "#d55e00", recovered: "#009e73" };

function cellBrowser(place, cells) {
  const controls = make("div", { class: "controls" });
  const view = make("div", { id: "view" });
  const chosen = {};
  if (cells.length > 1) place.append(controls);
  place.append(view);

  // What was chosen stays chosen where it can; the lists below it follow.
  function choose() {
    let left = cells;
    const lists = LEVELS.map((level) => {
      const values = [...new Set(left.map((cell) => cell[level]))];
      if (!values.includes(chosen[level])) chosen[level] = preferred(left)[level];
      left = left.filter((cell) => cell[level] === chosen[level]);
      return chooser(level, values, chosen[level], (value) => {
        chosen[level] = value;
        choose();
        controls.querySelectorAll("select")[LEVELS.indexOf(level)].focus();
      });
    });
    controls.replaceChildren(...lists);
    view.replaceChildren(...cellView(left[0]));
  }

  choose();
}

// The first cell to be shown has as much to show as there is.
function preferred(cells) {
  return cells.find((cell) => cell.channel_map && cell.matrix) ?? cells.find((cell) => cell.requests) ?? cells[0];
}

function cellView(cell) {
  const name = LEVELS.map((level) => cell[level]).filter(Boolean);
  const heading = cell.kind === "state" ? null : make("h3", { id: "cell-name" }, `${name.slice(0, 3).join(", ")}, seed ${cell.seed}`);
  const parts = [heading, aboutCell(cell), timeline(cell), charts(cell), channelMaps(cell), textTable(cell)];
  return parts.filter((part) => part !== null);
}

function aboutCell(cell) {
  if (!cell.about?.length) return null;
  const rows = cell.about.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  return make("dl", { class: "facts" }, ...rows);
}

function timeline(cell) {
  const columns = cell.requests;
  if (!columns) return make("p", { class: "note" }, "This cell made no requests.");
  const requests = columns.id.map((_, n) =>
    Object.fromEntries([["number", n + 1], ...Object.entries(columns).map(([name, values]) => [name, values[n]])]),
  );
  const rejected = requests.filter((request) => request.outcome !== "accepted").length;
  return make(
    "div",
    { id: "timeline" },
    make("h3", {}, `Requests: ${requests.length - rejected} accepted, ${rejected} rejected`),
    legend([
      { name: "before the request", ...BEFORE, dash: "0 99" },
      { name: "after, accepted", ...ACCEPTED, dash: "0 99" },
      { name: "tried, rejected (nothing changed)", ...REJECTED, dash: "0 99" },
    ]),
    make("div", { class: "figures" }, lossChart(requests, "forget_loss", "Loss on the request's examples"), lossChart(requests, "guard_loss", "Loss on the guard examples")),
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
    xRange: [0.5, requests.length + 0.5],
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
    `${request.number}. ${request.id}: ${request.outcome}`,
    request.reason,
    `forget loss ${change(request, "forget_loss")}`,
    `guard loss ${change(request, "guard_loss")}`,
    request.selected || request.recovered ? `suppressed ${request.selected}, recovered ${request.recovered}` : "",
  ];
}

function change(request, name) {
  return `${shownLoss(request[`${name}_before`])} → ${shownLoss(request[`${name}_after`])}`;
}

function requestTable(requests) {
  const hasMask = requests.some((request) => request.selected || request.recovered);
  const maskColumns = [
    ["Suppressed", (request) => request.selected, 0],
    ["Recovered", (request) => request.recovered, 0],
    ["Capacity %", (request) => request.capacity === null ? null : 100 * request.capacity, 2],
  ];
  const columns = [
    ["#", (request) => request.number, 0],
    ["Request", (request) => request.id],
    ["Outcome", (request) => request.outcome],
    ["Forget loss", (request) => request.forget_loss_after, 3, (request) => change(request, "forget_loss")],
    ["Guard loss", (request) => request.guard_loss_after, 3, (request) => change(request, "guard_loss")],
    ...(hasMask ? maskColumns : []),
    ["Attempts", (request) => request.attempts, 0],
    ["Seconds", (request) => request.seconds, 2],
    ["Reason", (request) => request.reason],
  ];
  return buildTable("Requests", columns, requests, (request) => (request.outcome === "accepted" ? "" : "rejected"));
}

function charts(cell) {
  const figures = [accuracyChart(cell), emergenceMap(cell), ...structureCharts(cell)].filter(Boolean);
  return figures.length ? make("div", {}, make("h3", {}, "Accuracy and channels"), make("div", { class: "figures" }, ...figures)) : null;
}

function accuracyChart(cell) {
  const points = cell.checkpoints;
  if (!points) return null;
  const tasks = Object.keys(points[0].retain ?? {});
  const series = [
    { name: "forgotten items", colour: "#d55e00", shape: "cross", points: points.map((point) => [point.request, point.forget]) },
    ...tasks.map((task, n) => ({
      name: `held-out ${task}`,
      ...markStyle([0, 2, 3, 5, 4][n % 5]),
      points: points.map((point) => [point.request, point.retain[task]]),
    })),
  ];
  return figure("Accuracy by checkpoint", "", lineChart({ label: "Accuracy by checkpoint", yLabel: "accuracy, %", unit: " %", series }));
}

function emergenceMap(cell) {
  const matrix = cell.matrix;
  if (!matrix) return null;
  const numbers = matrix.map((_, n) => String(n + 1));
  const root = heatMap({
    label: "Accuracy on the items of each request after each request",
    rows: numbers,
    columns: numbers,
    colour: COLOURS[0],
    valueOf: (row, column) => (matrix[row][column] === null ? null : matrix[row][column] / 100),
    linesOf: (row, column) => [
      `items of request ${row + 1} after request ${column + 1}`,
      `accuracy ${shown(matrix[row][column])} %${column < row ? " (not requested yet)" : ""}`,
      `before all requests ${shown(cell.before?.[row])} %`,
      column > row ? `right after its own request ${shown(matrix[row][row])} %` : "",
    ],
    xLabel: "after request",
    yLabel: "items of request",
    tile: [Math.min(96, 480 / numbers.length), Math.min(68, 340 / numbers.length)],
    outline: (...corner) => stairs(numbers.length, ...corner),
  });
  return figure(
    "Re-emergence",
    "Accuracy on the items of each request over the stream. Right of the stairs they have been forgotten; dark there is knowledge that stayed or came back.",
    colourBar(COLOURS[0], "0 %", "100 %"),
    root,
  );
}

// Right of this line a request has been made, left of it not yet.
function stairs(count, left, top, width, height) {
  let path = `M${left} ${top}`;
  for (let n = 0; n < count; n++) path += `V${top + (n + 1) * height}` + (n + 1 < count ? `H${left + (n + 1) * width}` : "");
  return path;
}

function structureCharts(cell) {
  const structure = cell.structure ?? {};
  const requests = cell.requests ?? {};
  const hasMask = (requests.suppressed_now ?? []).some(Boolean);
  // The structure begins before all requests, the outcomes after the first.
  const over = (name) =>
    structure[name] ? structure[name].map((value, n) => [n, value]) : hasMask ? requests[name].map((value, n) => [n + 1, value]) : null;
  const capacity = over("capacity");
  if (!capacity) return [];
  const shares = structure.composition;
  return [
    figure(
      "Capacity",
      "Channels above the dormant threshold.",
      lineChart({
        label: "Capacity over requests",
        yLabel: "capacity, %",
        unit: " %",
        digits: 3,
        height: 240,
        series: [{ name: "capacity", ...markStyle(0), points: capacity.map(([n, value]) => [n, 100 * value]) }],
      }),
    ),
    figure(
      "Suppressed and dormant channels",
      "In the state after each request.",
      lineChart({
        label: "Suppressed and dormant channels over requests",
        yLabel: "channels",
        digits: 0,
        height: 240,
        series: [
          { name: "suppressed (mask below 1)", colour: CHANNEL_COLOURS.suppressed, shape: "circle", points: over("suppressed_now") },
          { name: "dormant", colour: CHANNEL_COLOURS.dormant, shape: "square", points: over("dormant") },
        ],
      }),
    ),
    shares
      ? figure(
          "Where the channels of highest risk come from",
          `Core: of highest risk at the first request already; ${shown(100 * structure.random_overlap, 2)} % of channels drawn at random would be.`,
          lineChart({
            label: "Composition of the channels of highest risk",
            yLabel: "share, %",
            unit: " %",
            height: 240,
            series: ["core", "new", "recurring"].map((name, n) => ({
              name,
              ...markStyle([0, 1, 2][n]),
              points: shares.map((share, request) => [request + 1, 100 * share[name]]),
            })),
          }),
        )
      : null,
  ];
}

function channelMaps(cell) {
  const map = cell.channel_map;
  if (!map) return null;
  const layers = map.layers.map((layer) => (layer === null ? "other" : String(layer)));
  const figures = Object.entries(CHANNEL_COLOURS).map(([name, colour]) => {
    const share = (row, column) => (map.channels[row][column] ? map[name][row][column] / map.channels[row][column] : null);
    const highest = Math.max(...map.layers.flatMap((_, row) => map.projections.map((__, column) => share(row, column) ?? 0)));
    const root = heatMap({
      label: `${name} channels by layer and projection`,
      rows: layers,
      columns: map.projections,
      colour,
      valueOf: (row, column) => (highest ? (share(row, column) ?? 0) / highest : 0),
      linesOf: (row, column) => [
        `layer ${layers[row]}, ${map.projections[column]}`,
        `${name}: ${map[name][row][column]} of ${map.channels[row][column]} channels (${shown(share(row, column) === null ? null : 100 * share(row, column), 2)} %)`,
      ],
      xLabel: "",
      yLabel: "layer",
      tile: [34, layers.length > 16 ? 12 : 20],
      slanted: true,
    });
    const total = map[name].flat().reduce((sum, count) => sum + count, 0);
    return figure(`${name[0].toUpperCase()}${name.slice(1)}`, `${total.toLocaleString("en")} channels in all.`, colourBar(colour, "0 %", `${shown(100 * highest, 2)} %`), root);
  });
  return make(
    "div",
    { id: "channel-map" },
    make("h3", {}, "Channel map"),
    make("p", { class: "note" }, "Share of each projection's channels. Suppressed: mask below 1 at the end; dormant: at or below the threshold at the end; recovered: raised by any request."),
    make("div", { class: "figures maps" }, ...figures),
  );
}

function textTable(cell) {
  const texts = cell.texts;
  if (!texts) return null;
  const all = [["Item", "key"], ["Prompt", "prompt"], ["Right answer", "gold"], ["Before", "before"], ["After", "after"]];
  const columns = all.filter(([, name]) => texts.some((entry) => name in entry)).map(([label, name]) => [label, (entry) => entry[name]]);
  return make(
    "div",
    { id: "texts" },
    make("h3", {}, "Answers before and after"),
    buildTable(`${texts.length} of ${cell.texts_in_all} answers`, columns, texts),
  );
}

if (DATA.cells.length) cellBrowser(document.getElementById("chosen"), DATA.cells);
