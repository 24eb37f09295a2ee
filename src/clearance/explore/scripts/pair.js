// Two classes of real data: one slider over lambda, everything else follows from the machine there.

/** The class with its training and test rows, unpacked once. */
const classRows = new Map();

async function classAt(scene, index) {
  if (!classRows.has(index)) {
    const { name, train, test } = scene.classes[index];
    const bytes = await inflated(`class-${index}`);
    classRows.set(index, {
      name,
      train: sparseRows(bytes, scene.space.width, 0, train),
      test: sparseRows(bytes, scene.space.width, train, train + test),
    });
  }
  return classRows.get(index);
}

async function pairAt(scene, index) {
  const { first, second, scales, offsets, gaps } = scene.pairs[index];
  const bytes = await inflated(`pair-${index}`);
  const machines = { scales, offsets, gaps, directions: new Float32Array(bytes.buffer) };
  return tiltingPair(scene.space, await classAt(scene, first), await classAt(scene, second), machines);
}

/** The sample nearest to its class mean among those that are drawn: a typical one. */
function typical(rows, mean, space) {
  let [best, least] = [0, Infinity];
  for (let i = 0; i < Math.min(rows.count, MOST_DRAWN); i++) {
    const difference = combined(1, sample(rows, i, space), -1, mean);
    const far = dot(difference, difference);
    if (far < least) [best, least] = [i, far];
  }
  return best;
}

let redrawPair = null; // the pair that is shown

/** Draw one pair and follow the slider; returns nothing until the pair is there. */
function followPair(scene, pair) {
  const slider = byId("pair-lambda");
  const { first, second, i, j, space } = pair;
  const state = { at: [typical(first.train, i, space), typical(second.train, j, space)] };
  const samples = ["x", "y"].map((name) => byId(`sample-${name}`));
  let shown;
  const chosen = () => trainingGroups(shown).map((group, k) => ({ group, at: state.at[k] }));
  const reach = planeReach(pair, state.at);
  const drawPlane = pairPlane(pair, reach, pick);
  const drawHistogram = pairHistogram(pair, distanceReach(pair, reach));

  function pick(z, n) {
    const [distance, k, at] = nearestPoint(shown, z, n);
    if (distance === Infinity) return;
    state.at[k] = at;
    redraw();
  }

  function redraw() {
    shown = measured(pair, Number(slider.value));
    drawPlane(shown, chosen());
    drawHistogram(shown);
    if (pair.space.shape) drawPictures(pair, shown, chosen());
    samples.forEach((input, k) => (input.value = String(state.at[k])));
    tellPair(scene, pair, shown, Number(slider.value));
  }

  samples.forEach((input, k) => {
    input.max = String(Math.min([pair.first, pair.second][k].train.count, MOST_DRAWN) - 1);
    input.oninput = () => {
      state.at[k] = Number(input.value);
      redraw();
    };
  });
  slider.oninput = redraw;
  redrawPair = redraw;
  if (pair.space.shape) drawMeans(pair);
  nameClasses(pair);
  redraw();
}

/** [squared distance, class, index] of the drawn point that is nearest to a place in the plane. */
function nearestPoint(shown, a, b) {
  let best = [Infinity, 0, 0];
  trainingGroups(shown).forEach(({ z, n }, k) => {
    for (let i = 0; i < Math.min(z.length, MOST_DRAWN); i++) {
      const far = (z[i] - a) ** 2 + (n[i] - b) ** 2;
      if (far < best[0]) best = [far, k, i];
    }
  });
  return best;
}

function drawMeans(pair) {
  paintImage(byId("picture-i"), pair.space.shape, pair.i, 0, 1);
  paintImage(byId("picture-j"), pair.space.shape, pair.j, 0, 1);
}

function drawPictures(pair, shown, chosen) {
  paintWeights(byId("picture-w"), pair.space.shape, shown.w);
  const rows = [pair.first.train, pair.second.train];
  paintMirrors(
    pair,
    shown,
    chosen.map(({ group, at }, k) => [["x", "y"][k], rows[k], at, group.label * group.margins[at]]),
  );
}

function nameClasses(pair) {
  for (const node of document.querySelectorAll("[data-class]")) {
    node.textContent = node.dataset.class === "i" ? pair.first.name : pair.second.name;
  }
}
