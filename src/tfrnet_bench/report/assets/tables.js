// Sorting by a click on a header. What is missing stays last in both directions.

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const body = table.tBodies[0];
      const isNumeric = [...body.rows].some((row) => row.cells[column].dataset.number !== undefined);
      const present = head.getAttribute("aria-sort");
      // The first click shows the highest number, or the first name.
      const order =
        present === "descending" || (present === "none" && !isNumeric) ? "ascending" : "descending";
      heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
      sortRows(body, column, order === "ascending" ? 1 : -1, isNumeric);
    });
  });
}

function sortRows(body, column, direction, isNumeric) {
  const key = (row) => {
    const cell = row.cells[column];
    if (!isNumeric) return cell.textContent;
    return cell.dataset.number === undefined ? null : Number(cell.dataset.number);
  };
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return direction * (isNumeric ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  };
  body.append(...[...body.rows].sort((first, second) => compare(key(first), key(second))));
}

// Columns are [label, row => value, digits, row => text]; without digits the value is a text, and
// without a text a number is shown by itself.
function buildTable(caption, columns, rows, styleOf = () => "") {
  const heads = columns.map(([label, , digits]) =>
    make("th", { scope: "col", class: digits === undefined ? "" : "number", "aria-sort": "none" }, make("button", { type: "button" }, label)),
  );
  const body = rows.map((row) =>
    make("tr", { class: styleOf(row) }, ...columns.map((column) => buildCell(row, column))),
  );
  const table = make(
    "table",
    { class: "sortable" },
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...body),
  );
  makeSortable(table);
  const box = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, table);
  return make("div", { class: "table long" }, box);
}

function buildCell(row, [, valueOf, digits, textOf]) {
  const value = valueOf(row);
  const isMissing = value === null || value === undefined || value === "";
  if (digits === undefined) return make("td", { class: "text" }, isMissing ? "" : value);
  if (isMissing) return make("td", { class: "missing" }, textOf ? textOf(row) : MISSING);
  const text = textOf ? textOf(row) : value.toFixed(digits);
  return make("td", { class: "number", "data-number": value }, text);
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
