// The tilting plane of a pair: points on a canvas, and over them the boundary, the centroids and two mirror images.

const WIDE = { width: 720, height: 480, margin: { left: 12, right: 12, top: 12, bottom: 56 } };
const SHARP = 1.5; // pixels of the canvas for one unit of the drawing
const MOST_DRAWN = 1500; // points of a class; all of them are counted

/** Every fourth step of the slider and the last: what lies between is hardly further than both. */
function sampledSteps(pair) {
  const last = pair.machines.scales.length - 1;
  return [...Array(Math.ceil(last / 4)).keys()].map((k) => 4 * k).concat(last);
}

/** Half of the width that holds every training point, and the mirror images of some, at the sampled steps. */
function planeReach(pair, some) {
  let reach = pair.separation / 2;
  for (const step of sampledSteps(pair)) {
    const shown = measured(pair, step);
    trainingGroups(shown).forEach((group, k) => {
      const [mz, mn] = mirrorPlace(shown, group, some[k]);
      reach = Math.max(reach, largest(group.z), 1.55 * largest(group.n), 1.05 * Math.abs(mz), 1.8 * Math.abs(mn));
    });
  }
  return 1.04 * reach;
}

/** The largest distance of a training sample at the sampled steps, as far as the plane goes: the axis stays as it is. */
function distanceReach(pair, most) {
  const shown = sampledSteps(pair).map((step) => Math.max(...trainingGroups(measured(pair, step)).map(({ margins }) => largest(margins))));
  return Math.min(most, 1.05 * Math.max(...shown));
}

/** Build the drawing of a pair; returns what redraws it. */
function pairPlane(pair, reach, onPick) {
  const svg = byId("pair-plane");
  svg.replaceChildren(...svg.querySelectorAll("title"));
  const tall = (reach * (WIDE.height - 68)) / (WIDE.width - 24);
  const scale = scaleOf(WIDE.width, WIDE.height, WIDE.margin, [-reach, reach], [-tall, tall]);
  const parts = boundaryParts(svg, scale, "pair");
  bottomAxis(svg, scale, roundTicks(-reach, reach), `z: from ${pair.first.name} to ${pair.second.name}`);
  const band = ["i", "j"].map((side) => drawn(parts.over, "path", { class: `band ${side}` }));
  const width = drawn(parts.over, "path", { class: "band-width", "marker-end": "url(#tip)", "marker-start": "url(#tip)" });
  const widthText = drawnIndexed(parts.over, "2 d", "adv", { class: "halo" });
  const centroids = [
    [-pair.separation / 2, "i", pair.first.name],
    [pair.separation / 2, "j", pair.second.name],
  ];
  for (const [z, side, name] of centroids) {
    drawn(parts.over, "circle", { cx: scale.x(z), cy: scale.y(0), r: 6, class: `centroid ${side}` });
    drawn(parts.over, "text", { x: scale.x(z), y: scale.y(0) + 12, class: "halo below" }, `mean ${name}`);
  }
  const marks = ["x", "y"].map((name) => mirrorMarks(parts.over, name));
  svg.onclick = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    onPick(scale.toX(place.x), scale.toY(place.y));
  };
  return (shown, chosen) => {
    drawPoints(scale, shown);
    drawBoundary(parts, scale, shown);
    drawBand({ band, width, widthText }, scale, pair, shown);
    chosen.forEach(({ group, at }, k) => drawMirror(marks[k], scale, shown, group, at));
  };
}

/** Where the mirror image of a sample lies in the plane. */
function mirrorPlace(shown, group, at) {
  const d = group.label * group.margins[at];
  return [group.z[at] - 2 * d * shown.cos, group.n[at] - 2 * d * shown.sin];
}

/** Every training point as a few pixels, written one by one: thousands of shapes would take longer than the rest. */
function drawPoints(scale, shown) {
  const canvas = byId("pair-points");
  const { data, width, height } = pixelsOf(canvas, SHARP * scale.width, SHARP * scale.height);
  data.fill(0);
  for (const { label, z, n } of trainingGroups(shown)) {
    const [red, green, blue] = channels(label < 0 ? "--s0" : "--s1");
    const count = Math.min(z.length, MOST_DRAWN);
    const side = count > 500 ? 3 : 6;
    for (let k = 0; k < count; k++) {
      const left = Math.round(SHARP * scale.x(z[k]) - side / 2);
      const top = Math.round(SHARP * scale.y(n[k]) - side / 2);
      if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
      for (let row = top; row < top + side; row++) {
        for (let at = 4 * (row * width + left), end = at + 4 * side; at < end; at += 4) {
          data[at] = red;
          data[at + 1] = green;
          data[at + 2] = blue;
          data[at + 3] = Math.min(data[at + 3] + 150, 255);
        }
      }
    }
  }
  shownPixels(canvas);
}

/** Lines through both centroids, parallel to the boundary: they are 2 d_adv apart. */
function drawBand({ band, width, widthText }, scale, pair, shown) {
  const far = 4 * scale.right;
  const half = pair.separation / 2;
  [-1, 1].forEach((side, k) => {
    const line = { cos: shown.cos, sin: shown.sin, offset: -side * half * shown.cos };
    changed(band[k], { d: path(scale, lineThrough(line, far)) });
  });
  const away = -0.72 * scale.high; // below the middle, where the arrow hides least
  const ends = [-half * shown.cos, half * shown.cos].map((d) => [
    d * shown.cos - away * shown.sin,
    d * shown.sin + away * shown.cos,
  ]);
  changed(width, { d: path(scale, ends) });
  const [a, b] = [(ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2];
  changed(widthText, { x: scale.x(a), y: scale.y(b) - 8 });
}

function mirrorMarks(parent, name) {
  return {
    link: drawn(parent, "path", { class: "link" }),
    from: drawn(parent, "circle", { r: 5.5, class: "picked" }),
    to: drawn(parent, "circle", { r: 5.5, class: "picked mirrored" }),
    name: drawn(parent, "text", { class: "halo" }, name),
    mirror: drawnIndexed(parent, name, "m", { class: "halo" }),
  };
}

/** Above a mark, or below it where there is no room above. */
function namePlace(scale, n) {
  const y = scale.y(n);
  return y < 44 ? y + 28 : y - 10;
}

function drawMirror(marks, scale, shown, group, at) {
  const [z, n] = [group.z[at], group.n[at]];
  const [mz, mn] = mirrorPlace(shown, group, at);
  changed(marks.link, { d: path(scale, [[z, n], [mz, mn]]) });
  changed(marks.from, { cx: scale.x(z), cy: scale.y(n) });
  changed(marks.to, { cx: scale.x(mz), cy: scale.y(mn) });
  changed(marks.name, { x: scale.x(z), y: namePlace(scale, n) });
  changed(marks.mirror, { x: scale.x(mz), y: namePlace(scale, mn) });
}
