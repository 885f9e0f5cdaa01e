/* Whatever scrolls sideways says on which side there is more: data-more is "left", "right" or both, and book.css lets
 * that side fade out. */
function markSides(element) {
  const sides = [];
  if (element.scrollLeft > 1) sides.push("left");
  if (element.scrollLeft + element.clientWidth < element.scrollWidth - 1) sides.push("right");
  element.dataset.more = sides.join(" ");
}
document.addEventListener("DOMContentLoaded", () => {
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => markSides(entry.target)));
  for (const element of document.querySelectorAll("article pre, article .table-wrapper, figure.picture > div")) {
    element.addEventListener("scroll", () => markSides(element), { passive: true });
    resized.observe(element);
  }
});
