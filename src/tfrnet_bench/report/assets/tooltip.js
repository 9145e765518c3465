// One box that follows the pointer, or stands beside a mark that has the keyboard's focus.

const tooltip = document.getElementById("tooltip");

function explain(element, lines, focusable = false) {
  element.addEventListener("pointerenter", (event) => showTooltip(lines, event.clientX, event.clientY));
  element.addEventListener("pointermove", (event) => placeTooltip(event.clientX, event.clientY));
  element.addEventListener("pointerleave", hideTooltip);
  if (focusable) {
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "img");
    element.addEventListener("focus", () => {
      const box = element.getBoundingClientRect();
      showTooltip(lines, box.right, box.bottom);
    });
    element.addEventListener("blur", hideTooltip);
  }
  element.setAttribute("aria-label", lines.join("; "));
}

function showTooltip(lines, x, y) {
  tooltip.replaceChildren(...lines.filter(Boolean).map((line) => make("div", {}, line)));
  tooltip.hidden = false;
  placeTooltip(x, y);
}

function placeTooltip(x, y) {
  const { width, height } = tooltip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? Math.max(4, x - 14 - width) : x + 14;
  const top = y + 14 + height > innerHeight ? Math.max(4, y - 14 - height) : y + 14;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${top}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTooltip();
});
