// Straight lines in a plane of two coordinates: cos(angle) a + sin(angle) b + offset = 0, and the half planes beside it.

/** Two points of the line, far outside of any drawing. */
function lineThrough({ cos, sin, offset }, far) {
  const [a, b] = [-offset * cos, -offset * sin];
  return [
    [a - far * sin, b + far * cos],
    [a + far * sin, b - far * cos],
  ];
}

/** The corners of the side towards which w points (1), or of the other (-1). */
function halfPlane(line, far, side) {
  const [one, other] = lineThrough(line, far);
  const [a, b] = [side * far * line.cos, side * far * line.sin];
  return [one, other, [other[0] + a, other[1] + b], [one[0] + a, one[1] + b]];
}

/** Move a boundary, its half planes and the arrow of w to a new line. */
function drawBoundary(parts, scale, line) {
  const far = 4 * Math.max(scale.right - scale.left, scale.high - scale.low);
  changed(parts.boundary, { d: path(scale, lineThrough(line, far)) });
  changed(parts.sideI, { d: `${path(scale, halfPlane(line, far, -1))}Z` });
  changed(parts.sideJ, { d: `${path(scale, halfPlane(line, far, 1))}Z` });
  const foot = [-line.offset * line.cos, -line.offset * line.sin];
  const length = (scale.right - scale.left) * 0.1;
  const tip = [foot[0] + length * line.cos, foot[1] + length * line.sin];
  changed(parts.arrow, { d: path(scale, [foot, tip]) });
  changed(parts.w, {
    x: scale.x(tip[0] + 0.25 * length * line.cos),
    y: scale.y(tip[1] + 0.25 * length * line.sin) + 5,
  });
}

/** Empty parts for `drawBoundary`, clipped to the drawing. */
function boundaryParts(svg, scale, id) {
  const { left, right, top, bottom } = scale.margin;
  const clip = drawn(drawn(svg, "defs"), "clipPath", { id: `${id}-clip` });
  drawn(clip, "rect", {
    x: left,
    y: top,
    width: scale.width - left - right,
    height: scale.height - top - bottom,
  });
  const under = drawn(svg, "g", { "clip-path": `url(#${id}-clip)` });
  const sideI = drawn(under, "path", { class: "half i" });
  const sideJ = drawn(under, "path", { class: "half j" });
  const points = drawn(svg, "g");
  const over = drawn(svg, "g", { "clip-path": `url(#${id}-clip)` });
  const boundary = drawn(over, "path", { class: "boundary" });
  const arrow = drawn(over, "path", { class: "boundary thin", "marker-end": "url(#tip)" });
  const w = drawn(over, "text", { class: "w" }, "w");
  return { sideI, sideJ, points, over, boundary, arrow, w };
}
