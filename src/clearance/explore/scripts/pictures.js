// Samples and weights as pictures: pixels are painted as they are, weights in the colours of their classes.

/** A canvas of a size in pixels, and its pixels as bytes; made once, because a new size lays out the page again. */
function pixelsOf(canvas, width, height) {
  if (canvas.pixels?.width !== width || canvas.pixels.height !== height) {
    [canvas.width, canvas.height] = [width, height];
    canvas.pixels = canvas.getContext("2d").createImageData(width, height);
  }
  return canvas.pixels;
}

function shownPixels(canvas) {
  canvas.getContext("2d").putImageData(canvas.pixels, 0, 0);
}

/** An image, channels first, with `low` black and `high` white. */
function paintImage(canvas, [depth, height, width], x, low, high) {
  const { data } = pixelsOf(canvas, width, height);
  const area = height * width;
  const factor = 255 / (high - low || 1);
  for (let k = 0; k < area; k++) {
    for (let c = 0; c < 3; c++) data[4 * k + c] = Math.round(factor * (x[depth === 1 ? k : c * area + k] - low));
    data[4 * k + 3] = 255;
  }
  shownPixels(canvas);
}

/** Weights over the largest of them: towards class I in its colour, towards J in the other, 0 as paper. */
function paintWeights(canvas, [depth, height, width], w) {
  const { data } = pixelsOf(canvas, width, height);
  const area = height * width;
  const most = largest(w) || 1;
  const [towardsI, towardsJ, nothing] = ["--s0", "--s1", "--paper"].map(channels);
  for (let k = 0; k < area; k++) {
    let value = 0; // of colour images, the mean of the channels
    for (let c = 0; c < depth; c++) value += w[c * area + k] / most / depth;
    const ink = value < 0 ? towardsI : towardsJ;
    for (let c = 0; c < 3; c++) {
      data[4 * k + c] = Math.round(nothing[c] + Math.abs(value) * (ink[c] - nothing[c]));
    }
    data[4 * k + 3] = 255;
  }
  shownPixels(canvas);
}

/** Two samples and their mirror images, in one common range that is not clipped. */
function paintMirrors(pair, shown, chosen) {
  const pictures = {};
  for (const [name, rows, at, d] of chosen) {
    const x = sample(rows, at, pair.space);
    pictures[name] = x;
    pictures[`${name}-mirror`] = moved(x, shown, d, 2);
  }
  let [low, high] = [Infinity, -Infinity];
  for (const x of Object.values(pictures)) {
    for (const value of x) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  for (const [name, x] of Object.entries(pictures)) {
    paintImage(byId(`picture-${name}`), pair.space.shape, x, low, high);
  }
}
