// The page comes to life.

async function start() {
  const scene = JSON.parse(byId("scene").textContent);
  toySpace();
  oddImage();
  lossScaling(scene.distances);
  if (typeof DecompressionStream === "undefined") {
    byId("pair-note").textContent = "This part needs a browser of 2023 or later, which can unpack the images.";
    return;
  }
  await choosePair(scene);
  document.documentElement.dataset.ready = "yes";
}

start();
