// A pair of classes and its machines: the tilting plane, every distance, and what they come to.
//   w / ||w|| = cos(angle) z + sin(angle) n,   d(x) = cos(angle) z_x + sin(angle) n_x + offset

const STRAIGHT = 1e-6; // radians below which what is left of w across z is rounding of single precision
const LEANING = 1e-3; // from here on what is left points somewhere for certain

/** Two classes as the page holds them; `groups` are the training and test rows with the label of each. */
function tiltingPair(space, first, second, machines) {
  const [i, j] = [centroid(first.train, space), centroid(second.train, space)];
  const between = combined(1, j, -1, i);
  const separation = norm(between);
  const mid = combined(0.5, i, 0.5, j);
  const pair = { space, first, second, machines, i, j, mid, separation, z: scaled(1 / separation, between) };
  pair.groups = ["train", "test"].flatMap((split) => [
    { split, label: -1, rows: first[split] },
    { split, label: 1, rows: second[split] },
  ]);
  for (const group of pair.groups) group.z = projections(group.rows, pair.z, space, -dot(pair.z, mid));
  return pair;
}

/** The direction w / ||w|| of the machine at a step of the slider. */
function directionAt(pair, step) {
  const { width } = pair.space;
  return Float64Array.from(pair.machines.directions.subarray(step * width, (step + 1) * width));
}

/** Angle, offset and n of one SVM; along z, where n is free, the n of the next SVM that is tilted. */
function planeAt(pair, step) {
  const w = directionAt(pair, step);
  const along = dot(w, pair.z);
  const across = combined(1, w, -along, pair.z);
  const left = combined(1, across, -dot(across, pair.z), pair.z);
  const leaning = Math.atan2(norm(left), along);
  const offset = dot(w, pair.mid) + pair.machines.offsets[step];
  const straight = leaning < STRAIGHT;
  const n = straight ? leaningAt(pair, step) : scaled(1 / norm(left), left);
  return { w, angle: straight ? 0 : leaning, offset, n, scale: pair.machines.scales[step] };
}

function leaningAt(pair, step) {
  for (let weaker = step - 1; weaker >= 0; weaker--) {
    const w = directionAt(pair, weaker);
    const left = combined(1, w, -dot(w, pair.z), pair.z);
    if (norm(left) >= LEANING) return scaled(1 / norm(left), left);
  }
  const axis = new Float64Array(pair.space.width); // no SVM is tilted: the feature most nearly across z
  axis[pair.z.reduce((best, value, k) => (Math.abs(value) < Math.abs(pair.z[best]) ? k : best), 0)] = 1;
  const left = combined(1, axis, -dot(axis, pair.z), pair.z);
  return scaled(1 / norm(left), left);
}

/** Every point's place in the plane and distance, and the readouts. */
function measured(pair, step) {
  const plane = planeAt(pair, step);
  const [cos, sin] = [Math.cos(plane.angle), Math.sin(plane.angle)];
  const shift = -dot(plane.n, pair.mid);
  const groups = pair.groups.map((group) => {
    const n = projections(group.rows, plane.n, pair.space, shift);
    const margins = n.map((value, k) => group.label * (cos * group.z[k] + sin * value + plane.offset));
    return { ...group, n, margins };
  });
  const [I, J] = trainingGroups({ groups });
  return {
    ...plane,
    cos,
    sin,
    groups,
    adversarial: (adversarialDistance(I.margins) + adversarialDistance(J.margins)) / 2,
    error: (errorDistance(I.margins) + errorDistance(J.margins)) / 2,
    train: wrongOf([I, J]),
    test: wrongOf(groups.filter(({ split }) => split === "test")),
  };
}

function trainingGroups({ groups }) {
  return groups.filter(({ split }) => split === "train");
}

/** How many of a split are on the wrong side or on the boundary. */
function wrongOf(groups) {
  let [wrong, count] = [0, 0];
  for (const { margins } of groups) {
    count += margins.length;
    for (const margin of margins) wrong += margin <= 0 ? 1 : 0;
  }
  return { wrong, count };
}

/** x - times d(x) w: projected on the boundary for 1, its mirror image for 2. */
function moved(x, plane, distance, times) {
  return combined(1, x, -times * distance, plane.w);
}
