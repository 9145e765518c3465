// Heat maps: a colour whose strength is the share of the highest value.

// `rows` and `columns` are labels, `valueOf(row, column)` is in [0, 1], `linesOf` explains a tile.
function heatMap({ label, rows, columns, colour, valueOf, linesOf, xLabel, yLabel, tile, slanted, outline }) {
  const [width, height] = tile;
  const left = 58;
  const top = slanted ? 66 : 8;
  const right = left + columns.length * width;
  const bottom = top + rows.length * height;
  const size = [right + (slanted ? 34 : 12), bottom + (slanted ? 12 : 42)];
  const root = draw("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, role: "img", "aria-label": label });
  root.style.maxWidth = `${size[0]}px`;
  rows.forEach((name, row) => {
    if (isLabelled(row, rows.length, height)) {
      root.append(draw("text", { x: left - 6, y: top + (row + 0.5) * height + 4, "text-anchor": "end" }, name));
    }
  });
  columns.forEach((name, column) => {
    const x = left + (column + 0.5) * width;
    if (slanted) {
      root.append(draw("text", { x, y: top - 6, transform: `rotate(-50 ${x} ${top - 6})` }, name));
    } else if (isLabelled(column, columns.length, width)) {
      root.append(draw("text", { x, y: bottom + 16, "text-anchor": "middle" }, name));
    }
  });
  const middle = (top + bottom) / 2;
  root.append(
    draw("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, yLabel),
    draw("text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, xLabel),
  );
  rows.forEach((_, row) => {
    columns.forEach((__, column) => {
      const value = valueOf(row, column);
      const place = { x: left + column * width, y: top + row * height, width, height };
      const tileOf = draw("rect", { ...place, class: "tile", fill: colour, "fill-opacity": value ?? 0 });
      explain(tileOf, linesOf(row, column));
      root.append(tileOf);
    });
  });
  if (outline) root.append(draw("path", { d: outline(left, top, width, height), class: "stair" }));
  return root;
}

// As many labels as there is room for; the first always.
function isLabelled(position, count, size) {
  return position % Math.ceil(16 / Math.min(size, 16)) === 0 && (count <= 40 || position % 5 === 0);
}

function colourBar(colour, low, high) {
  const steps = [...Array(11).keys()].map((n) =>
    draw("rect", { x: n * 14, y: 0, width: 14, height: 10, fill: colour, "fill-opacity": n / 10 }),
  );
  const bar = draw("svg", { viewBox: "0 0 154 10", class: "bar", "aria-hidden": "true" }, ...steps);
  return make("p", { class: "legend" }, low, bar, high);
}
