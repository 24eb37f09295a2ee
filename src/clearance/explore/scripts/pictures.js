// Samples and weights as pictures: pixels are painted as they are, weights in the colours of their classes.

/** "#0072b2" as [0, 114, 178]. */
function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Put one [red, green, blue] per pixel onto a canvas of the picture's own size. */
function painted(canvas, [, height, width], colourAt) {
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let k = 0; k < width * height; k++) picture.data.set([...colourAt(k), 255], 4 * k);
  context.putImageData(picture, 0, 0);
}

/** An image, channels first, with `low` black and `high` white. */
function paintImage(canvas, shape, x, low, high) {
  const area = shape[1] * shape[2];
  const level = (k) => Math.round((255 * (x[k] - low)) / (high - low || 1));
  painted(canvas, shape, (k) => [0, 1, 2].map((c) => level(shape[0] === 1 ? k : c * area + k)));
}

/** Weights over the largest of them: towards class I in its colour, towards J in the other, 0 as paper. */
function paintWeights(canvas, shape, w) {
  const area = shape[1] * shape[2];
  const most = largest(w) || 1;
  const [towardsI, towardsJ, nothing] = ["--s0", "--s1", "--paper"].map((name) => channels(colour(name)));
  painted(canvas, shape, (k) => {
    let value = 0; // of colour images, the mean of the channels
    for (let c = 0; c < shape[0]; c++) value += w[c * area + k] / most / shape[0];
    const ink = value < 0 ? towardsI : towardsJ;
    return nothing.map((paper, c) => Math.round(paper + Math.abs(value) * (ink[c] - paper)));
  });
}

/** Two samples and their mirror images, in one common range that is not clipped. */
function paintMirrors(pair, shown, chosen) {
  const pictures = {};
  for (const [name, rows, at, d] of chosen) {
    const x = sample(rows, at, pair.space);
    pictures[name] = x;
    pictures[`${name}-mirror`] = moved(x, shown, d, 2);
  }
  const all = Object.values(pictures);
  const low = Math.min(...all.map((x) => x.reduce((least, value) => Math.min(least, value), Infinity)));
  const high = Math.max(...all.map((x) => x.reduce((most, value) => Math.max(most, value), -Infinity)));
  for (const [name, x] of Object.entries(pictures)) {
    paintImage(byId(`picture-${name}`), pair.space.shape, x, low, high);
  }
}
