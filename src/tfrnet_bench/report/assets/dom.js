// Making elements. Texts go in as text nodes only, so nothing in the data can become markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MISSING = "-";

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null).map(asNode));
  return element;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

function shown(value, digits = 1) {
  return value === null || value === undefined ? MISSING : value.toFixed(digits);
}

// Losses span several orders of magnitude.
function shownLoss(value) {
  if (value === null || value === undefined) return "not finite";
  return value !== 0 && Math.abs(value) < 0.01 ? value.toExponential(1) : value.toFixed(3);
}

function chooser(label, values, chosen, onChange) {
  const options = values.map((value) => make("option", { value }, value || MISSING));
  const select = make("select", { "aria-label": label }, ...options);
  select.value = chosen;
  select.addEventListener("change", () => onChange(select.value));
  return make("label", {}, label, select);
}

function figure(title, remark, ...content) {
  return make("figure", {}, make("figcaption", {}, make("strong", {}, title), remark), ...content);
}
