// The distances y d(x) of a pair as two histograms, and over them the hinge as the size of the weights scales it.

const BINS = 80;
const LOSS_TOP = 3;

/** Build the drawing of a pair; returns what redraws it. */
function pairHistogram(pair, reach) {
  const svg = byId("pair-histogram");
  svg.replaceChildren(...svg.querySelectorAll("title"));
  const scale = scaleOf(WIDE.width, WIDE.height, { ...WIDE.margin, left: 34, right: 34 }, [-reach, reach], [-1, 1]);
  const losses = scaleOf(WIDE.width, WIDE.height, scale.margin, [-reach, reach], [-LOSS_TOP, LOSS_TOP]);
  const bars = ["i", "j"].map((side) => drawn(svg, "path", { class: `bars ${side}` }));
  drawn(svg, "path", { class: "axis", d: path(scale, [[-reach, 0], [reach, 0]]) });
  drawn(svg, "path", { class: "axis", d: path(scale, [[0, -1], [0, 1]]) });
  bottomAxis(svg, scale, roundTicks(-reach, reach), "y d(x): distance to the boundary, below 0 on the wrong side");
  for (let value = 1; value <= LOSS_TOP; value++) {
    drawn(svg, "text", { x: scale.margin.left - 6, y: losses.y(value) + 4, class: "tick side" }, String(value));
  }
  drawn(svg, "text", { x: scale.x(-reach) + 4, y: scale.y(-0.93), class: "corner" }, `${pair.second.name}, downwards`);
  drawn(svg, "text", { x: scale.x(-reach) + 4, y: scale.y(-0.81), class: "corner" }, `${pair.first.name}, upwards`);
  const hinge = drawn(svg, "path", { class: "loss chosen" });
  const kink = drawn(svg, "path", { class: "kink" });
  const kinkText = drawn(svg, "text", { class: "halo" }, "1/‖w‖");
  return (shown) => {
    const counts = trainingHistograms(shown, reach, BINS);
    const tallest = Math.max(...counts.map((one) => Math.max(...one)));
    counts.forEach((one, k) => changed(bars[k], { d: barsPath(scale, one, (k ? -0.95 : 0.95) / tallest) }));
    const margin = 1 / shown.scale;
    const left = Math.max((1 - LOSS_TOP) * margin, -reach); // where the hinge leaves the drawing
    const points = [left, Math.min(margin, reach), reach].map((z) => [z, LOSSES.hinge.f(z / margin)]);
    changed(hinge, { d: path(losses, points) });
    const inside = margin <= reach;
    changed(kink, { d: inside ? `M${scale.x(margin)} ${scale.y(0) - 6}v12` : "" });
    changed(kinkText, { x: scale.x(margin), y: scale.y(0) - 12, visibility: inside ? "visible" : "hidden" });
  };
}

/** The share of each class in every bin; classes I and J. */
function trainingHistograms(shown, reach, bins) {
  return trainingGroups(shown).map(({ margins }) =>
    histogram(margins, reach, bins).map((count) => count / margins.length),
  );
}

/** One path around all bars, up or down from 0. */
function barsPath(scale, counts, height) {
  const width = (scale.right - scale.left) / counts.length;
  let d = `M${scale.x(scale.left)} ${scale.y(0)}`;
  counts.forEach((count, k) => {
    d += `V${scale.y(count * height).toFixed(1)}H${scale.x(scale.left + (k + 1) * width).toFixed(1)}`;
  });
  return `${d}V${scale.y(0)}Z`;
}
