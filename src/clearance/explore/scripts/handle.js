// A point in a drawing that a finger, a mouse or the arrow keys move.

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Args: svg, its scale, the node to move; `point` gives the place as numbers, `move(a, b)` is given where it should
 * go, `step` is how far an arrow goes (a tenth of it with Shift), `label` says what a screen reader calls it.
 */
function handle(svg, scale, node, { point, move, step, label }) {
  changed(node, { tabindex: 0, role: "application", "aria-roledescription": "point to move" });
  const say = () => {
    const [a, b] = point();
    node.setAttribute("aria-label", `${label}, at ${printed(a, 2)} and ${printed(b, 2)}; arrow keys move it`);
  };
  const go = (a, b) => {
    move(clamped(a, scale.left, scale.right), clamped(b, scale.low, scale.high));
    say();
  };
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    node.focus({ preventScroll: true });
    event.preventDefault();
  });
  node.addEventListener("pointermove", (event) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    go(scale.toX(place.x), scale.toY(place.y));
  });
  node.addEventListener("keydown", (event) => {
    const way = KEYS[event.key];
    if (!way) return;
    event.preventDefault();
    const far = event.shiftKey ? step / 10 : step;
    const [a, b] = point();
    go(a + far * way[0], b + far * way[1]);
  });
  say();
}

/** A round handle: a large ring that is easy to catch, around a point. */
function roundHandle(parent, colourName) {
  const group = drawn(parent, "g", { class: "handle" });
  drawn(group, "circle", { r: 20, class: "catch" });
  drawn(group, "circle", { r: 11, class: "ring" });
  drawn(group, "circle", { r: 5.5, fill: `var(${colourName})` });
  return group;
}

function placed(node, scale, [a, b]) {
  return changed(node, { transform: `translate(${scale.x(a).toFixed(1)} ${scale.y(b).toFixed(1)})` });
}
