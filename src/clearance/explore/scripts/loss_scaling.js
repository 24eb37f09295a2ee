// The size of the weights rescales a loss: the same distances, seen as errors alone or as distances alone.

const FLAT = { width: 720, height: 390, margin: { left: 46, right: 16, top: 14, bottom: 56 } };
const MOST_LOSS = 5;

function lossScaling(distances) {
  const svg = byId("loss-plot");
  const reach = 6;
  const bins = 60;
  const scale = scaleOf(FLAT.width, FLAT.height, FLAT.margin, [-reach, reach], [0, MOST_LOSS]);
  drawBars(svg, scale, histogram(distances, reach, bins));
  bottomAxis(svg, scale, [-6, -4, -2, 0, 2, 4, 6], "y d(x): distance to the boundary, below 0 on the wrong side");
  lossAxis(svg, scale);
  const clipped = drawn(svg, "g", { "clip-path": "url(#loss-clip)" });
  drawn(drawn(drawn(svg, "defs"), "clipPath", { id: "loss-clip" }), "rect", {
    x: scale.margin.left,
    y: scale.margin.top,
    width: scale.x(reach) - scale.margin.left,
    height: scale.y(0) - scale.margin.top + 2,
  });
  const curves = Object.fromEntries(
    Object.keys(LOSSES).map((name) => [name, drawn(clipped, "path", { class: "loss other" })]),
  );
  const [large, small] = ["large", "small"].map((name) => drawn(clipped, "path", { class: `limit ${name}` }));
  const slider = byId("loss-scale");
  const [adversarial, error] = [adversarialDistance(distances), errorDistance(distances)];

  function redraw() {
    const exponent = Number(slider.value);
    const size = 10 ** exponent;
    const chosen = document.querySelector('input[name="loss"]:checked').value;
    for (const [name, curve] of Object.entries(curves)) {
      const points = lossPoints(LOSSES[name], size, reach);
      changed(curve, { d: path(scale, points), class: `loss ${name === chosen ? "chosen" : "other"}` });
    }
    clipped.append(curves[chosen]);
    drawLimits({ large, small }, scale, LOSSES[chosen], size, reach);
    const risk = empiricalRisk(LOSSES[chosen], distances, size);
    const linear = LOSSES[chosen].beta !== null;
    slider.setAttribute("aria-valuetext", `size ${printed(size, 3)}`);
    writeTexts({
      "loss-scale-value": printed(size, size < 1 ? 3 : 2),
      "loss-risk": printed(risk, 4),
      "loss-large": linear ? printed(size * error, 4) : "none",
      "loss-small": linear ? printed(LOSSES[chosen].alpha - LOSSES[chosen].beta * size * adversarial, 4) : "none",
    });
    announce(`Size of the weights ${printed(size, 2)}; mean loss ${printed(risk, 2)}.`);
  }

  slider.addEventListener("input", redraw);
  document.querySelectorAll('input[name="loss"]').forEach((choice) => choice.addEventListener("change", redraw));
  writeTexts({ "loss-error-distance": printed(error, 4), "loss-adversarial-distance": printed(adversarial, 4) });
  redraw();
}

function drawBars(svg, scale, counts) {
  const tallest = Math.max(...counts);
  const width = (scale.right - scale.left) / counts.length;
  counts.forEach((count, k) => {
    const left = scale.left + k * width;
    const top = scale.y((count / tallest) * scale.high * 0.55);
    drawn(svg, "rect", {
      x: scale.x(left),
      y: top,
      width: scale.x(left + width) - scale.x(left) - 1,
      height: scale.y(0) - top,
      class: left < -1e-9 ? "column wrong" : "column",
    });
  });
}

function lossAxis(svg, scale) {
  drawn(svg, "path", { class: "axis", d: `M${scale.margin.left} ${scale.y(scale.high)}V${scale.y(0)}` });
  for (let value = 0; value <= scale.high; value++) {
    drawn(svg, "text", { x: scale.margin.left - 8, y: scale.y(value) + 4, class: "tick side" }, String(value));
  }
  drawn(svg, "text", { class: "title", transform: `translate(14 ${scale.y(scale.high / 2)}) rotate(-90)` }, "loss");
}

/** The curve; with a step or a kink exactly where it is. */
function lossPoints(loss, size, reach) {
  if (loss === LOSSES.zero_one) return [[-reach, 1], [0, 1], [0, 0], [reach, 0]];
  const places = Array.from({ length: 241 }, (_, k) => -reach + (k * reach) / 120);
  if (1 / size < reach) places.push(1 / size);
  return places.sort((one, other) => one - other).map((z) => [z, loss.f(size * z)]);
}

function drawLimits({ large, small }, scale, loss, size, reach) {
  const ends = [-reach, 0, reach];
  const none = loss.beta === null;
  changed(large, { d: none ? "" : path(scale, ends.map((z) => [z, largeScaleLimit(loss, z, size)])) });
  changed(small, { d: none ? "" : path(scale, ends.map((z) => [z, smallScaleLimit(loss, z, size)])) });
}
