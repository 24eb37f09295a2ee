"""Audit a network that you trained yourself, with three lines after your own training loop.

    python examples/audit_your_model.py

writes ``audit.html``, one page that opens in any browser. Replace the images (in [0, 1]) and
the module by your own.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import clearance as cl


def trained_network(images: torch.Tensor, labels: torch.Tensor, epochs: int) -> nn.Module:
    """An ordinary network, trained in an ordinary loop without Clearance."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(images[rows]), labels[rows]).backward()
            optimizer.step()
    return network


def main(epochs: int = 15, out: Path = Path("audit.html")) -> cl.Card:
    """Train, audit, and say what was found."""
    train, test = cl.load_dataset("digits", split="train"), cl.load_dataset("digits", split="test")
    network = trained_network(train.images, train.labels, epochs)

    # features are the input of the last linear layer; head="9" names that layer
    model = cl.wrap(network, example=test.images[:8])
    card = cl.audit(model, train=train, test=test, name="my network")
    card.save(out)

    print(card)
    print(f"The whole page: {out}")
    return card


if __name__ == "__main__":
    main()
