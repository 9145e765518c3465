// One chosen cell: the choice itself, and the parts of its view in their order.

const LEVELS = ["kind", "stream", "variant", "seed"];

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

function charts(cell) {
  const figures = [accuracyChart(cell), emergenceMap(cell), ...structureCharts(cell)].filter(Boolean);
  return figures.length ? make("div", {}, make("h3", {}, "Accuracy and channels"), make("div", { class: "figures" }, ...figures)) : null;
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
