// What is printed of a pair at one step of the slider, and how a pair is chosen.

function percent({ wrong, count }) {
  return count ? `${printed((100 * wrong) / count, 2)} %` : "none";
}

function tellPair(scene, pair, shown, step) {
  const exponent = scene.log_lambdas[step];
  byId("pair-lambda").setAttribute("aria-valuetext", `lambda is 10 to the power ${printed(exponent, 1)}`);
  const degrees = (shown.angle * 180) / Math.PI;
  tellPower("pair-lambda-value", exponent);
  writeTexts({
    "pair-angle": printed(shown.angle, 3),
    "pair-degrees": `${printed(degrees, 1)}°`,
    "pair-adversarial": printed(shown.adversarial, 3),
    "pair-adversarial-share": `${printed((200 * shown.adversarial) / pair.separation, 0)} % of the most possible`,
    "pair-train": percent(shown.train),
    "pair-train-count": `${shown.train.wrong} of ${shown.train.count}`,
    "pair-test": percent(shown.test),
    "pair-test-count": `${shown.test.wrong} of ${shown.test.count}`,
    "pair-margin": printed(1 / shown.scale, 3),
    "pair-error-distance": printed(shown.error, 4),
    "pair-offset": printed(shown.offset, 3),
    "pair-gap": pair.machines.gaps[step].toExponential(0).replace("-", "−"),
  });
  announce(
    `Lambda 10 to the power ${printed(exponent, 1)}: the boundary is tilted by ${printed(degrees, 0)} degrees, ` +
      `adversarial distance ${printed(shown.adversarial, 2)}, test error ${percent(shown.test)}.`,
  );
}

/** The state that the address holds: #pair=2-3&step=40, classes by name, in which a hyphen is escaped. */
function stateInAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  return { pair: words.get("pair"), step: words.get("step") };
}

function pairName(scene, { first, second }) {
  return [first, second].map((at) => encodeURIComponent(scene.classes[at].name).replaceAll("-", "%2D")).join("-");
}

/** Lists of classes to choose two of, and the address that remembers them. */
async function choosePair(scene) {
  const choice = byId("pair-choice");
  scene.pairs.forEach((pair, index) => {
    const [one, other] = [pair.first, pair.second].map((at) => scene.classes[at].name);
    choice.append(new Option(`${one} against ${other}`, String(index)));
  });
  byId("pair-choice-field").hidden = scene.pairs.length === 1;
  const slider = byId("pair-lambda");
  const remember = () => {
    const words = new URLSearchParams({ pair: pairName(scene, scene.pairs[Number(choice.value)]), step: slider.value });
    history.replaceState(null, "", `#${words}`);
  };
  const open = async () => {
    const wanted = choice.value;
    const pair = await pairAt(scene, Number(wanted));
    if (choice.value === wanted) followPair(scene, pair); // else another was chosen while this one was unpacked
  };
  const fromAddress = async () => {
    const { pair, step } = stateInAddress();
    const index = scene.pairs.findIndex((one) => pairName(scene, one) === pair);
    if (index >= 0) choice.value = String(index);
    if (step !== null) slider.value = step;
    await open();
  };
  choice.addEventListener("change", async () => {
    slider.value = slider.defaultValue;
    await open();
    remember();
  });
  slider.addEventListener("change", remember);
  onScheme(() => redrawPair?.());
  addEventListener("hashchange", () => (stateInAddress().pair ? fromAddress() : null));
  await fromAddress();
}
