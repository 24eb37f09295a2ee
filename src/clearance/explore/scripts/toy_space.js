// The space of images with two pixels: an image to drag, a boundary to tilt, the nearest image on it, the mirror image.

const TOY = { width: 560, height: 560, margin: { left: 30, right: 30, top: 30, bottom: 30 } };

/** x_p and x_m for the boundary through the origin with normal (cos, sin). */
function toyReflections([a, b], angle) {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const distance = a * cos + b * sin;
  const at = (times) => [a - times * distance * cos, b - times * distance * sin];
  return { distance, projected: at(1), mirrored: at(2), cos, sin };
}

function toySpace() {
  const svg = byId("toy-plane");
  const scale = scaleOf(TOY.width, TOY.height, TOY.margin, [-1, 1], [-1, 1]);
  const state = { image: [-0.8, 0] };
  const parts = boundaryParts(svg, scale, "toy");
  drawClasses(parts.points, scale);
  const link = drawn(parts.over, "path", { class: "link" });
  const mirror = drawn(svg, "g", { class: "mirror" });
  drawn(mirror, "circle", { r: 6 });
  drawn(mirror, "text", { y: -12 }, "mirror image");
  const hand = roundHandle(svg, "--ink");
  const slider = byId("toy-angle");

  function redraw() {
    const share = Number(slider.value);
    const found = toyReflections(state.image, (share * Math.PI) / 2);
    drawBoundary(parts, scale, { ...found, offset: 0 });
    changed(link, { d: path(scale, [state.image, found.mirrored]) });
    placed(mirror, scale, found.mirrored);
    placed(hand, scale, state.image);
    drawToyImage(byId("toy-image"), state.image);
    drawToyImage(byId("toy-projected"), found.projected);
    drawToyImage(byId("toy-mirror"), found.mirrored);
    slider.setAttribute("aria-valuetext", `${printed(90 * share, 1)} degrees`);
    const side = found.distance > 0 ? "J" : found.distance < 0 ? "I" : "neither";
    writeTexts({
      "toy-angle-value": `${printed(90 * share, 1)}°`,
      "toy-at": `(${printed(state.image[0], 2)}, ${printed(state.image[1], 2)})`,
      "toy-side": side,
      "toy-distance": printed(Math.abs(found.distance), 3),
      "toy-mirror-distance": printed(2 * Math.abs(found.distance), 3),
      "toy-mirror-at": `(${printed(found.mirrored[0], 2)}, ${printed(found.mirrored[1], 2)})`,
    });
    announce(
      `Classified as ${side}. The mirror image is ${printed(2 * Math.abs(found.distance), 2)} away, ` +
        `at ${printed(found.mirrored[0], 2)} and ${printed(found.mirrored[1], 2)}.`,
    );
  }

  handle(svg, scale, hand, {
    point: () => state.image,
    move: (a, b) => {
      state.image = [a, b];
      redraw();
    },
    step: 0.05,
    label: "Your image",
  });
  slider.addEventListener("input", redraw);
  redraw();
}

/** Both classes along b = 0, with a few of their images. */
function drawClasses(parent, scale) {
  for (const [from, to, name, at] of [
    [-1, -0.2, "I", -0.6],
    [0.2, 1, "J", 0.6],
  ]) {
    drawn(parent, "path", {
      class: `segment ${name.toLowerCase()}`,
      d: path(scale, [
        [from, 0],
        [to, 0],
      ]),
    });
    drawn(parent, "text", { x: scale.x(at), y: scale.y(0) + 46, class: "class" }, `class ${name}`);
    for (let k = 0; k < 5; k++) {
      const a = from + (k * (to - from)) / 4;
      toyThumbnail(parent, scale.x(a), scale.y(0) + 20, [a, 0]);
    }
  }
}
