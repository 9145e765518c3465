// What became of a cell's channels: over the requests, and where in the model.

const CHANNEL_COLOURS = { suppressed: "#e69f00", changed: "#e69f00", dormant: "#d55e00", recovered: "#009e73" };

function structureCharts(cell) {
  const structure = cell.structure ?? {};
  const requests = cell.requests ?? {};
  const hasMask = (requests.suppressed_now ?? []).some(Boolean);
  // The structure begins before all requests, the outcomes after the first.
  const over = (name) =>
    structure[name] ? structure[name].map((value, n) => [n, value]) : hasMask ? requests[name].map((value, n) => [n + 1, value]) : null;
  const strengths = requests.mask?.some(Boolean) ? strengthCharts(requests.mask) : null;
  const capacity = over("capacity");
  if (!capacity && !strengths) return [];
  const shares = structure.composition;
  return [
    ...(strengths ?? countCharts(capacity, over("suppressed_now"), over("dormant"))),
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

// How strong the mask is after each request.
function strengthCharts(masks) {
  const over = (name, factor) => masks.map((mask, n) => [n + 1, mask ? factor * mask[name] : null]);
  const counts = [
    ["more than 1 %", "changed_1_percent", "circle", "#56b4e9"],
    ["more than 10 %", "changed_10_percent", "triangle", "#0072b2"],
    ["more than 50 %", "changed_50_percent", "diamond", CHANNEL_COLOURS.changed],
    ["dormant", "dormant", "square", CHANNEL_COLOURS.dormant],
  ];
  return [
    figure(
      "Change by the mask",
      "Of a channel's output, in the state after each request: 0 % leaves it alone, 100 % removes it.",
      lineChart({
        label: "Mean and largest change of a channel over requests",
        yLabel: "change, %",
        unit: " %",
        digits: 2,
        height: 240,
        series: [
          { name: "mean", ...markStyle(0), points: over("mean_change", 100) },
          { name: "largest", ...markStyle(1), points: over("largest_change", 100) },
        ],
      }),
    ),
    figure(
      "Changed channels",
      "In the state after each request.",
      lineChart({
        label: "Changed and dormant channels over requests",
        yLabel: "channels",
        digits: 0,
        height: 240,
        series: counts.map(([name, field, shape, colour]) => ({ name, colour, shape, points: over(field, 1) })),
      }),
    ),
  ];
}

// What results of before have instead.
function countCharts(capacity, suppressed, dormant) {
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
          { name: "suppressed (mask below 1)", colour: CHANNEL_COLOURS.suppressed, shape: "circle", points: suppressed },
          { name: "dormant", colour: CHANNEL_COLOURS.dormant, shape: "square", points: dormant },
        ],
      }),
    ),
  ];
}

function channelMaps(cell) {
  const map = cell.channel_map;
  if (!map) return null;
  const layers = map.layers.map((layer) => (layer === null ? "other" : String(layer)));
  // Most channels of a solved mask are a little below 1, so those changed by more than 1 % tell more.
  const names = ["changed" in map ? "changed" : "suppressed", "dormant", "recovered"];
  const figures = names.map((name) => {
    const colour = CHANNEL_COLOURS[name];
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
    make("p", { class: "note" }, `Share of each projection's channels. ${"changed" in map ? "Changed: by more than 1 % at the end" : "Suppressed: mask below 1 at the end"}; dormant: at or below the threshold at the end; recovered: raised by any request.`),
    make("div", { class: "figures maps" }, ...figures),
  );
}
