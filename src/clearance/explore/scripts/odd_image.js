// One odd training image: an exact hinge machine on 101 points, fitted at every move of the odd one or of lambda.

const EACH = 50;

/** 50 images of each class along b = 0, and the odd one, labelled I, at the end. */
function toyTraining(odd) {
  const points = [];
  for (let k = 0; k < EACH; k++) points.push([-1 + (0.8 * k) / (EACH - 1), 0]);
  for (let k = 0; k < EACH; k++) points.push([0.2 + (0.8 * k) / (EACH - 1), 0]);
  points.push(odd);
  return { points, labels: points.map((_, k) => (k >= EACH && k < 2 * EACH ? 1 : -1)) };
}

/** The fitted boundary and what is to be read of it. */
function fittedToy(odd, lambda) {
  const { points, labels } = toyTraining(odd);
  const machine = hingeMachine(points, labels, lambda);
  const scale = norm(machine.w);
  const [cos, sin] = [machine.w[0] / scale, machine.w[1] / scale];
  const offset = machine.b / scale;
  const distances = points.map(([a, b], i) => labels[i] * (cos * a + sin * b + offset));
  return {
    cos,
    sin,
    offset,
    scale,
    angle: Math.atan2(machine.w[1], machine.w[0]),
    gap: machine.gap / machine.objective,
    oddIsRight: distances[distances.length - 1] > 0,
    wrong: distances.filter((distance) => distance <= 0).length,
    adversarial: adversarialDistance(distances),
  };
}

function oddImage() {
  const svg = byId("odd-plane");
  const scale = scaleOf(TOY.width, TOY.height, TOY.margin, [-1, 1], [-1, 1]);
  const state = { odd: [0.07, -0.07] };
  const parts = boundaryParts(svg, scale, "odd");
  const dots = toyTraining(state.odd);
  dots.points.slice(0, -1).forEach(([a, b], i) => {
    drawn(parts.points, "circle", {
      cx: scale.x(a),
      cy: scale.y(b),
      r: 4,
      class: dots.labels[i] > 0 ? "dot j" : "dot i",
    });
  });
  drawn(parts.points, "text", { x: scale.x(-0.6), y: scale.y(0) + 28, class: "class" }, "class I");
  drawn(parts.points, "text", { x: scale.x(0.6), y: scale.y(0) + 28, class: "class" }, "class J");
  const hand = roundHandle(svg, "--s0");
  drawn(hand, "text", { y: 30, class: "class" }, "odd image of I");
  const slider = byId("odd-lambda");

  function redraw() {
    const exponent = Number(slider.value);
    const found = fittedToy(state.odd, 10 ** exponent);
    drawBoundary(parts, scale, found);
    placed(hand, scale, state.odd);
    slider.setAttribute("aria-valuetext", `10 to the power ${printed(exponent, 1)}`);
    const degrees = (found.angle * 180) / Math.PI;
    tellPower("odd-lambda-value", exponent);
    writeTexts({
      "odd-angle": `${printed(degrees, 1)}°`,
      "odd-at": `(${printed(state.odd[0], 2)}, ${printed(state.odd[1], 2)})`,
      "odd-right": found.oddIsRight ? "right" : "wrong",
      "odd-wrong": `${found.wrong} of ${2 * EACH + 1}`,
      "odd-adversarial": printed(found.adversarial, 3),
      "odd-margin": printed(1 / found.scale, 3),
      "odd-offset": printed(found.offset, 3),
    });
    announce(
      `The boundary is tilted by ${printed(degrees, 0)} degrees; the odd image is ${found.oddIsRight ? "right" : "wrong"}; ` +
        `adversarial distance ${printed(found.adversarial, 2)}.`,
    );
  }

  handle(svg, scale, hand, {
    point: () => state.odd,
    move: (a, b) => {
      state.odd = [a, b];
      redraw();
    },
    step: 0.02,
    label: "The odd image of class I",
  });
  slider.addEventListener("input", redraw);
  redraw();
}
