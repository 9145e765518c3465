// What a cell still knows: accuracy by checkpoint, and of each request's items over the stream.

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
