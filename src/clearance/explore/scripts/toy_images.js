// The toy's images: two pixels, an inner square and a frame around it, each from -1 (dark) to 1 (light).

const DARK = [16, 42, 67];
const LIGHT = [240, 246, 252];

/** The colour of a pixel; beyond the range it stays at its end. */
function shade(value) {
  const share = clamped((value + 1) / 2, 0, 1);
  return `rgb(${DARK.map((dark, k) => Math.round(dark + share * (LIGHT[k] - dark))).join(" ")})`;
}

/** Draw the image (a, b) into an <svg> of 60 by 60. */
function drawToyImage(svg, [a, b]) {
  if (!svg.firstChild) {
    drawn(svg, "rect", { width: 60, height: 60 });
    drawn(svg, "rect", { x: 20, y: 20, width: 20, height: 20 });
  }
  const [frame, inner] = svg.children;
  changed(frame, { fill: shade(b) });
  changed(inner, { fill: shade(a) });
}

/** A small image within another drawing. */
function toyThumbnail(parent, x, y, [a, b], size = 18) {
  const group = drawn(parent, "g", { transform: `translate(${x - size / 2} ${y - size / 2})` });
  drawn(group, "rect", { width: size, height: size, fill: shade(b), class: "frame" });
  drawn(group, "rect", { x: size / 3, y: size / 3, width: size / 3, height: size / 3, fill: shade(a) });
}
