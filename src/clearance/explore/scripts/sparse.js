// Samples as bytes, x = low + step v, unpacked once into the bytes that are not 0: most of an image's are.

/** The bytes that an element of the page holds in base64, after gzip. */
async function inflated(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Rows `from` to `to` of bytes (rows, width): where each begins, and the column and value of what is not 0. */
function sparseRows(bytes, width, from, to) {
  const part = bytes.subarray(from * width, to * width);
  let kept = 0;
  for (const value of part) kept += value > 0 ? 1 : 0;
  const rows = {
    count: to - from,
    starts: new Uint32Array(to - from + 1),
    columns: width <= 65536 ? new Uint16Array(kept) : new Uint32Array(kept),
    values: new Uint8Array(kept),
  };
  let at = 0;
  for (let i = 0; i < rows.count; i++) {
    for (let k = 0; k < width; k++) {
      const value = part[i * width + k];
      if (value === 0) continue;
      rows.columns[at] = k;
      rows.values[at++] = value;
    }
    rows.starts[i + 1] = at;
  }
  return rows;
}

/** x.v + constant for every row, where x = low + step byte. */
function projections(rows, v, space, constant) {
  const { count, starts, columns, values } = rows;
  const found = new Float64Array(count);
  let start = constant;
  if (space.low !== 0) for (const value of v) start += space.low * value;
  for (let i = 0; i < count; i++) {
    let sum = 0;
    for (let at = starts[i]; at < starts[i + 1]; at++) sum += values[at] * v[columns[at]];
    found[i] = start + space.step * sum;
  }
  return found;
}

/** The mean of the rows. */
function centroid(rows, space) {
  const sums = new Float64Array(space.width);
  for (let at = 0; at < rows.values.length; at++) sums[rows.columns[at]] += rows.values[at];
  return sums.map((sum) => space.low + (space.step * sum) / rows.count);
}

/** One row in full. */
function sample(rows, i, space) {
  const x = new Float64Array(space.width).fill(space.low);
  for (let at = rows.starts[i]; at < rows.starts[i + 1]; at++) {
    x[rows.columns[at]] += space.step * rows.values[at];
  }
  return x;
}
