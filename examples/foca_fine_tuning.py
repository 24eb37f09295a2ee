"""Fine-tune a trained network by FOCA, and measure the error of heads trained on one image of each class.

    python examples/foca_fine_tuning.py

The network comes from elsewhere, trained as usual. After a few more epochs with FOCA its features depend less on
the head that they were trained with, so new heads need fewer images. Whether that costs accuracy is printed too.
For your own network, replace ``pretrained``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import clearance as cl


class Block(nn.Module):
    """Two convolutions with batch normalisation, added to their input."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(maps, maps, 3, padding=1, bias=False), nn.BatchNorm2d(maps)
        self.second, self.second_norm = nn.Conv2d(maps, maps, 3, padding=1, bias=False), nn.BatchNorm2d(maps)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same shape."""
        inner = self.first_norm(self.first(maps)).relu()
        return (maps + self.second_norm(self.second(inner))).relu()


class ResidualNetwork(nn.Module):
    """A small residual network in the style of the model zoos: ``features``, then ``classifier``."""

    def __init__(self, classes: int = 10, maps: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, maps, 3, padding=1), nn.ReLU(), Block(maps), nn.MaxPool2d(2), Block(maps)
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * maps, 64), nn.ReLU(inplace=True), nn.Linear(64, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        return self.classifier(torch.flatten(self.features(images), 1))


def pretrained(data: cl.ImageSet, epochs: int) -> nn.Module:
    """A network that was trained in an ordinary loop, without Clearance."""
    torch.manual_seed(0)
    network = ResidualNetwork(len(data.classes))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(len(data)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(data.images[rows]), data.labels[rows]).backward()
            optimizer.step()
    return network.eval()


def errors(model: cl.Classifier, train: cl.ImageSet, test: cl.ImageSet) -> dict[str, float]:
    """Test error of the model's own head, and of new heads trained on one image of each class."""
    own = cl.audits.Accuracy()(model, train, test).measurements
    few = cl.audits.CoAdaptation(per_class=(1,), repetitions=(20,), all_images=False)
    fresh = few(model, train, test).measurements
    return {
        "own head": next(m.value for m in own if (m.name, m.context["split"]) == ("error", "test")),
        **{str(m.context["head"]): m.value for m in fresh if m.name == "error"},
    }


def main(epochs: int = 10, tuning_epochs: int = 10, seed: int = 0) -> dict[str, dict[str, float]]:
    """Audit, fine-tune by FOCA, audit again."""
    train, test = cl.load_dataset("digits", split="train"), cl.load_dataset("digits", split="test")
    network = pretrained(train, epochs)

    model = cl.wrap(network, head="classifier", example=test.images[:8])
    found = {"before": errors(model, train, test)}
    way = cl.training.FOCA(per_class=1, recalibrate=True)  # batch statistics, once the weights have settled
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.02, momentum=0.9)
    training = way.start(model, train, optimizer, way.generators(seed))
    model.train()
    for _ in range(tuning_epochs):
        for rows in torch.randperm(len(train)).split(64):
            training.step(train.images[rows], train.labels[rows])
    training.finish()
    model.eval()
    found["after"] = errors(model, train, test)

    print(f"{'test error, %':>24} {'before':>7} {'after':>7}")
    for head, before in found["before"].items():
        print(f"{head:>24} {100 * before:7.1f} {100 * found['after'][head]:7.1f}")
    return found


if __name__ == "__main__":
    main()
