"""FOCA in your own training loop, on your own module: six lines of Clearance.

    python examples/foca_in_your_loop.py

The extractor never meets the same head twice: before every step a new weak head is trained on a few images of
each class, the step changes the extractor to lower this head's loss, and ``finish`` trains the head that your module
keeps. The data come from an ordinary ``DataLoader``; the module is any ``nn.Module`` that ends in a head.

With one image of each class (``per_class=1``) classes contract further, but the same loop then needs clipped
gradients, as ``cl.fit(..., limits=cl.training.Limits(clip_norm=1.0))`` has them: without them all features may become
equal, and the loss then stays at log 10 = 2.303. ``session.step`` steps by itself, so clip in a loop that steps, with
``session.loss`` and ``session.after_step`` (docs/foca.md).
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
        self.head = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        return self.head(self.body(images))


@torch.no_grad()
def error(network: nn.Module, data: cl.ImageSet) -> float:
    """The share of images that the network gives the wrong class."""
    return float((network.eval()(data.images).argmax(dim=1) != data.labels).double().mean())


def main(epochs: int = 10, seed: int = 0) -> nn.Module:
    """Train the network by FOCA in a plain loop; the module itself is changed."""
    train, test = cl.load_dataset("digits", split="train"), cl.load_dataset("digits", split="test")
    torch.manual_seed(seed)
    network = Network()
    batches = DataLoader(train, batch_size=64, shuffle=True)  # or your own loader of images in [0, 1]

    model = cl.wrap(network, head="head", example=train.images[:8])  # shares the weights of `network`
    way = cl.training.FOCA(per_class=10)
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.05, momentum=0.9)
    training = way.start(model, train, optimizer, way.generators(seed))
    for epoch in range(epochs):
        model.train()
        for images, labels in batches:
            loss = training.step(images, labels)
        print(f"epoch {epoch + 1}: loss under the last weak heads {loss.total.item():.3f}")
    training.finish()

    print(f"test error of your module: {100 * error(network, test):.1f} %")
    return network


if __name__ == "__main__":
    main()
