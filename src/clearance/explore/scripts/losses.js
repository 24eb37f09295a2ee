// Losses of scores, and how the size of the weights changes them as losses of distances: f(scale z).
// The same formulas as in clearance.linear.loss_scaling, against which the page is tested.

const LOSSES = {
  zero_one: { label: "0-1", f: (z) => (z <= 0 ? 1 : 0), alpha: null, beta: null },
  hinge: { label: "hinge", f: (z) => Math.max(1 - z, 0), alpha: 1, beta: 1 },
  softplus: {
    label: "softplus",
    f: (z) => Math.max(-z, 0) + Math.log1p(Math.exp(-Math.abs(z))),
    alpha: Math.LN2,
    beta: 0.5,
  },
};

function mean(values, of = (value) => value) {
  let sum = 0;
  for (let k = 0; k < values.length; k++) sum += of(values[k]);
  return sum / values.length;
}

/** R = mean f(scale z) over the distances z = y d(x). */
function empiricalRisk(loss, distances, scale) {
  return mean(distances, (z) => loss.f(scale * z));
}

/** What f(scale z) tends to for large weights; the 0-1 loss is its own limit. */
function largeScaleLimit(loss, z, scale) {
  return loss.beta === null ? loss.f(z) : scale * Math.max(-z, 0);
}

/** What it tends to for small weights; no scale makes the 0-1 loss linear. */
function smallScaleLimit(loss, z, scale) {
  return loss.beta === null ? loss.f(z) : loss.alpha - loss.beta * scale * z;
}

/** d_adv = mean z and d_err = mean max(-z, 0) of the distances z = y d(x). */
function adversarialDistance(distances) {
  return mean(distances);
}

function errorDistance(distances) {
  return mean(distances, (z) => Math.max(-z, 0));
}

/** How many of the values stand in each of `bins` equal parts of [-reach, reach]; what is beyond goes to the ends. */
function histogram(values, reach, bins) {
  const counts = new Float64Array(bins);
  for (const value of values) {
    counts[clamped(Math.floor(((value + reach) / (2 * reach)) * bins), 0, bins - 1)] += 1;
  }
  return counts;
}
