"""An ordinary training script that does not use Clearance, to try the audit on.

    python examples/third_party/plain_digits.py --normalise inside --out work
    python examples/third_party/plain_digits.py --normalise outside --out work

trains a small network on scikit-learn's digits in its own loop, and writes ``work/inside.pt`` or
``work/outside.pt``, a plain ``state_dict``, and the pictures as ``work/train.npz`` and ``work/test.npz``. The first
network normalises its images itself; for the second the loop does it, so users have to know mean and deviation.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

MEAN, STD = 0.305, 0.376  # of the training pictures


class Net(nn.Module):
    """Two convolutions and two linear layers, for pictures that are normalised already."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of normalised pictures."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class NormalisingNet(Net):
    """The same for pictures in [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures in [0, 1]."""
        return super().forward((x - MEAN) / STD)


def pictures(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test pictures in [0, 1] with labels; both are left in `folder` as bytes."""
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(images))
    for name, rows in (("train", order[:1300]), ("test", order[1300:])):
        np.savez(folder / f"{name}.npz", images=images[rows], labels=digits.target[rows])
    x, y = torch.tensor(images)[:, None] / 255, torch.tensor(digits.target)
    return x[order[:1300]], y[order[:1300]], x[order[1300:]], y[order[1300:]]


def train(net: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    net.train()
    for epoch in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")


def main(words: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("--normalise", choices=["inside", "outside"], default="outside")
    parser.add_argument("--out", type=Path, default=Path("work"))
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args(words)

    given.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    x, y, test_x, test_y = pictures(given.out)
    net = NormalisingNet() if given.normalise == "inside" else Net()
    if given.normalise == "outside":
        x, test_x = (x - MEAN) / STD, (test_x - MEAN) / STD
    train(net, x, y, given.epochs)

    net.eval()
    with torch.no_grad():
        accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    print(f"test accuracy {accuracy:.4f}")
    torch.save(net.state_dict(), given.out / f"{given.normalise}.pt")
    return accuracy


if __name__ == "__main__":
    main()
