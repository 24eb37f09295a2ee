// Vectors, as arrays of numbers: what every figure computes with.

function dot(a, b) {
  let sum = 0;
  for (let k = 0; k < a.length; k++) sum += a[k] * b[k];
  return sum;
}

function norm(a) {
  return Math.sqrt(dot(a, a));
}

/** alpha a + beta b. */
function combined(alpha, a, beta, b) {
  const sum = new Float64Array(a.length);
  for (let k = 0; k < a.length; k++) sum[k] = alpha * a[k] + beta * b[k];
  return sum;
}

function scaled(alpha, a) {
  return combined(alpha, a, 0, a);
}

function clamped(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** The largest absolute value. */
function largest(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}

/** x with A x = b, by elimination with pivots; A is a list of rows, and is used up. */
function solved(A, b) {
  const size = b.length;
  for (let k = 0; k < size; k++) {
    let pivot = k;
    for (let i = k + 1; i < size; i++) if (Math.abs(A[i][k]) > Math.abs(A[pivot][k])) pivot = i;
    [A[k], A[pivot]] = [A[pivot], A[k]];
    [b[k], b[pivot]] = [b[pivot], b[k]];
    for (let i = k + 1; i < size; i++) {
      const factor = A[i][k] / A[k][k];
      for (let j = k; j < size; j++) A[i][j] -= factor * A[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (let k = size - 1; k >= 0; k--) {
    for (let j = k + 1; j < size; j++) b[k] -= A[k][j] * b[j];
    b[k] /= A[k][k];
  }
  return b;
}
