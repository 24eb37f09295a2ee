// What figures are drawn with: SVG elements, a scale from numbers to places, colours of the page, numbers as text.

const SVG = "http://www.w3.org/2000/svg";

/** A new SVG element inside `parent`; what is null stays out. */
function drawn(parent, tag, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, tag);
  changed(node, attributes);
  if (text) node.textContent = text;
  parent.append(node);
  return node;
}

function changed(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(name, value);
  }
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

/** Places of numbers in a drawing: x from left to right, y from below to above. */
function scaleOf(width, height, margin, [left, right], [low, high]) {
  const [inner, tall] = [width - margin.left - margin.right, height - margin.top - margin.bottom];
  return {
    width,
    height,
    margin,
    left,
    right,
    low,
    high,
    x: (value) => margin.left + ((value - left) / (right - left)) * inner,
    y: (value) => margin.top + ((high - value) / (high - low)) * tall,
    toX: (place) => left + ((place - margin.left) / inner) * (right - left),
    toY: (place) => high - ((place - margin.top) / tall) * (high - low),
  };
}

/** "M x y L x y ..." through points given as numbers. */
function path(scale, points) {
  return points
    .map(([x, y], k) => `${k ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`)
    .join("");
}

/** A line along the bottom with numbers at `ticks`. */
function bottomAxis(parent, scale, ticks, name) {
  const y = scale.height - scale.margin.bottom;
  drawn(parent, "path", {
    class: "axis",
    d: `M${scale.margin.left} ${y}H${scale.width - scale.margin.right}`,
  });
  for (const tick of ticks) {
    drawn(parent, "path", { class: "axis", d: `M${scale.x(tick).toFixed(1)} ${y}v4` });
    drawn(parent, "text", { x: scale.x(tick), y: y + 8, class: "tick below" }, plain(tick));
  }
  const middle = (scale.margin.left + scale.width - scale.margin.right) / 2;
  drawn(parent, "text", { x: middle, y: y + 32, class: "title below" }, name);
}

/** About `count` round numbers within [low, high]. */
function roundTicks(low, high, count = 7) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) ticks.push(k * step);
  return ticks;
}

/** A number with so many decimals, and a real minus sign. */
function printed(value, decimals) {
  const text = value.toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

function plain(value) {
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

/** Write 10 to the power of `exponent` into an element, as people write it. */
function tellPower(id, exponent) {
  const raised = document.createElement("sup");
  raised.textContent = printed(exponent, 1);
  byId(id).replaceChildren("10", raised);
}

/** A letter with an index, as the text of a drawing. */
function drawnIndexed(parent, before, index, attributes) {
  const text = drawn(parent, "text", attributes, before);
  drawn(text, "tspan", { dy: 4, class: "index" }, index);
  return text;
}

/** A colour of the page as it is now, light or dark, as [red, green, blue]. */
function channels(name) {
  if (!channels.known.has(name)) {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    channels.known.set(name, [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  }
  return channels.known.get(name);
}
channels.known = new Map(); // asking the page costs more than drawing

/** Call `redraw` whenever the page turns light or dark. */
function onScheme(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    channels.known.clear();
    redraw();
  });
}

let announced = 0;
let touched = false; // before the reader's hand moves there is nothing new to write
for (const kind of ["input", "change", "keydown", "pointerdown"]) {
  addEventListener(kind, () => (touched = true), { capture: true, once: true });
}

/** Say it to who listens instead of looking, once the hand rests. */
function announce(text) {
  if (!touched) return;
  clearTimeout(announced);
  announced = setTimeout(() => (byId("announced").textContent = text), 500);
}

/** Write readouts: {id: text}. */
function writeTexts(texts) {
  for (const [id, text] of Object.entries(texts)) byId(id).textContent = text;
}
