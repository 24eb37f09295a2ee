// The exact linear SVM of a few points in few dimensions, fitted again at every drag:
//   minimise  (1/n) sum max(0, 1 - y (w.x + b)) + lambda ||w||^2,   b free.
// Augmented Lagrangian outside, Newton with an exact line search inside; the duality gap says how good it is.

const ROUNDS = 80;
const STEPS = 60;
const HALVINGS = 50;
const CLOSE = 1e-8; // relative duality gap
const ROUNDING = 1e-14;

function hingeMachine(points, labels, lambda) {
  const cap = 1 / labels.length;
  const rows = points.map((point, i) => Float64Array.of(...point.map((value) => labels[i] * value), labels[i]));
  const problem = { rows, lambda, cap, sigma: 10 * cap, a: new Float64Array(rows.length) };
  let theta = new Float64Array(rows[0].length);
  let found;
  for (let round = 0; round < ROUNDS; round++) {
    theta = innerMinimum(problem, theta);
    problem.a = multipliers(problem, margins(rows, theta));
    found = certified(problem, theta);
    if (found.gap <= CLOSE * found.objective) break;
    problem.sigma *= 3;
  }
  const w = theta.slice(0, -1);
  return { w, b: middleBias(points, labels, w), gap: found.gap, objective: found.objective };
}

function margins(rows, theta) {
  return Float64Array.from(rows, (row) => dot(row, theta));
}

/** clip(sigma t, 0, 1/n) with t = 1 - f + a / sigma: the pull of every point. */
function multipliers({ a, sigma, cap }, f) {
  return f.map((value, i) => clamped(sigma * (1 - value) + a[i], 0, cap));
}

/** sum += factor * the rows, each times its weight. */
function addRows(sum, rows, weights, factor) {
  for (let i = 0; i < rows.length; i++) {
    for (let k = 0; k < sum.length; k++) sum[k] += factor * weights[i] * rows[i][k];
  }
}

function innerMinimum(problem, start) {
  const { rows, lambda, sigma, cap, a } = problem;
  let theta = start;
  for (let step = 0; step < STEPS; step++) {
    const f = margins(rows, theta);
    const pull = multipliers(problem, f);
    const slope = theta.map((value, k) => 2 * lambda * value);
    slope[slope.length - 1] = 0; // the penalty does not see b
    addRows(slope, rows, pull, -1);
    if (largest(slope) < ROUNDING) break;
    const active = rows.filter((_, i) => {
      const raw = sigma * (1 - f[i]) + a[i];
      return raw > 0 && raw < cap;
    });
    const direction = newtonStep(problem, active, slope);
    const share = lineSearch(problem, theta, direction, f);
    theta = combined(1, theta, share, direction);
    if (share * largest(direction) <= ROUNDING * (1 + largest(theta))) break;
  }
  return theta;
}

function newtonStep({ lambda, sigma }, active, slope) {
  const size = slope.length;
  const H = Array.from({ length: size }, (_, k) => {
    const row = new Float64Array(size);
    row[k] = k < size - 1 ? 2 * lambda : 1e-7 * sigma; // a little on b, which no active point may hold
    return row;
  });
  for (const row of active) {
    for (let j = 0; j < size; j++) for (let k = 0; k < size; k++) H[j][k] += sigma * row[j] * row[k];
  }
  return solved(H, scaled(-1, slope));
}

/** The share of a step at which the slope along it is 0: it only rises, so that halving finds it. */
function lineSearch({ rows, lambda, sigma, cap, a }, theta, direction, f) {
  const along = margins(rows, direction);
  const [w, v] = [theta.subarray(0, -1), direction.subarray(0, -1)];
  const [wv, vv] = [dot(w, v), dot(v, v)];
  const slopeAt = (share) => {
    let slope = 2 * lambda * (wv + share * vv);
    for (let i = 0; i < f.length; i++) {
      slope -= clamped(sigma * (1 - f[i] - share * along[i]) + a[i], 0, cap) * along[i];
    }
    return slope;
  };
  if (slopeAt(1) <= 0) return 1;
  let [low, high] = [0, 1];
  for (let k = 0; k < HALVINGS && high - low > ROUNDING * high; k++) {
    const middle = (low + high) / 2;
    if (slopeAt(middle) > 0) high = middle;
    else low = middle;
  }
  return high;
}

/** Objective and duality gap; what the multipliers miss of sum a y = 0 counts as gap. */
function certified({ rows, lambda, cap, a }, theta) {
  const w = theta.subarray(0, -1);
  const f = margins(rows, theta);
  const objective = cap * f.reduce((sum, value) => sum + Math.max(1 - value, 0), 0) + lambda * dot(w, w);
  const pulled = new Float64Array(theta.length);
  addRows(pulled, rows, a, 1);
  const v = pulled.subarray(0, -1);
  const dual = a.reduce((sum, value) => sum + value, 0) - dot(v, v) / (4 * lambda);
  const unbalanced = Math.abs(pulled[pulled.length - 1]) * (1 + Math.abs(theta[theta.length - 1]));
  return { objective, gap: Math.abs(objective - dual) + unbalanced };
}

/** The middle of the best biases: passing a point's kink y - w.x raises the slope by one, from minus the +1 labels. */
function middleBias(points, labels, w) {
  const kinks = points.map((point, i) => labels[i] - dot(point, w)).sort((one, other) => one - other);
  const positive = labels.filter((label) => label > 0).length;
  return (kinks[positive - 1] + kinks[positive]) / 2;
}
