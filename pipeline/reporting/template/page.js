// Shows a point's values below its panel, and moves between points with the arrow keys. Without it, hovering still works.
for (const panel of document.querySelectorAll(".panel")) {
  const readout = panel.querySelector(".readout");
  const points = [...panel.querySelectorAll(".point")];
  const show = (event) => {
    const point = event.target.closest(".point");
    readout.textContent = point ? point.getAttribute("aria-label") : "";
  };
  panel.addEventListener("mouseover", show);
  panel.addEventListener("focusin", show);
  panel.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !points.length) return;
    event.preventDefault();
    const at = points.indexOf(document.activeElement);
    points[at < 0 ? (step > 0 ? 0 : points.length - 1) : (at + step + points.length) % points.length].focus();
  });
}
