"""A margin around the decision boundary in your own training loop, on your own module.

    python examples/large_margin_loop.py

Trains the same small network twice, with cross-entropy and with a large margin at the images and at the features
(Elsayed et al. 2018), and prints how often each is wrong and how far its test images are from the boundary, to first
order. The margin at the images is in pixel units: 1.0 in norm 2 is the change of one pixel from black to white. The
margin at the features is chosen from data, because features have no natural unit.

Do not expect fewer errors on clean images: a margin gives distance. For a verdict over several seeds, and under
attack, use ``clearance compare``.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import clearance as cl


class Network(nn.Module):
    """An ordinary network, without Clearance."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(512, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        return self.head(self.body(images))


def trained(loss: cl.losses.Loss, train: cl.ImageSet, epochs: int, seed: int) -> cl.Classifier:
    """A plain loop; three of its lines are special to Clearance."""
    torch.manual_seed(seed)
    network = Network()
    model = cl.wrap(network, head="head", example=train.images[:8], verbose=False)  # shares the weights
    optimizer = torch.optim.Adam(network.parameters(), lr=0.002)
    for _ in range(epochs):
        for images, labels in DataLoader(train, batch_size=64, shuffle=True):
            outputs = model.outputs(images, loss.layers)
            terms = loss(outputs, labels)
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()
            loss.after_step(outputs, labels)  # counts the step: quantiles and lazy margins need it
    return model.eval()


def measured(model: cl.Classifier, test: cl.ImageSet) -> tuple[float, float]:
    """The share of test images that are wrong, and the median of their distances to the boundary in norm 2."""
    margins = cl.losses.margin_distances(model, test.images, test.labels, ("input",), norm=2)
    distance = margins.nearest()["input"]  # negative where the image is wrong
    return float((distance < 0).double().mean()), float(distance.median())


def main(epochs: int = 20, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Train twice from the same weights on the same batches, and measure both."""
    train, test = cl.load_dataset("digits", split="train"), cl.load_dataset("digits", split="test")
    margin = cl.losses.LargeMarginLoss(
        layers=("input", "features"),
        norm=2,
        gamma={"input": 0.5, "features": cl.losses.GammaQuantile(0.9)},
    )
    losses = {"cross-entropy": cl.losses.CrossEntropyLoss(), "large margin": margin}
    found = {}
    for name, loss in losses.items():
        found[name] = error, distance = measured(trained(loss, train, epochs, seed), test)
        print(f"{name:14} wrong on {100 * error:.1f} % of test images, median distance {distance:.2f}")
    return found


if __name__ == "__main__":
    main()
