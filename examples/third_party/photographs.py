"""Train a residual network with batch normalisation on a folder of photographs, without Clearance.

    python examples/third_party/photographs.py PHOTOGRAPHS --out work

takes a folder with one folder of pictures for each class, copies the last fifth of every class (by name) into
``work/val`` and the rest into ``work/train``, trains, and leaves ``work/best.pt``: weights under ``model``, and the
epoch. Pictures are shrunk to ``--size`` and normalised outside of the network, with 0.5 and 0.5.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a shortcut; the first halves the resolution."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential(
            nn.Conv2d(before, after, 1, stride=2, bias=False), nn.BatchNorm2d(after)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Half as high and wide."""
        found = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(found + self.shortcut(x))


class ResNet(nn.Module):
    """Three blocks, an average over pixels, and a linear layer."""

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layers = nn.Sequential(Block(width, width), Block(width, 2 * width), Block(2 * width, 4 * width))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of normalised pictures."""
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def resnet() -> ResNet:
    """The network for ten classes."""
    return ResNet(10)


def divide(source: Path, out: Path, limit: int | None) -> None:
    """Copies of the pictures: the last fifth of every class to ``out/val``, the others to ``out/train``."""
    for folder in sorted(each for each in source.iterdir() if each.is_dir()):
        files = sorted(each for each in folder.iterdir() if each.suffix.lower() in (".jpg", ".jpeg", ".png"))
        files = files[:limit]
        held_out = max(1, len(files) // 5)
        if len(files) < 2:
            raise SystemExit(
                f"{folder} must have at least two pictures, one of them to hold out; got {len(files)}"
            )
        for part, chosen in (("train", files[:-held_out]), ("val", files[-held_out:])):
            there = out / part / folder.name
            there.mkdir(parents=True, exist_ok=True)
            for file in chosen:
                shutil.copy(file, there / file.name)


def load(folder: Path, size: int) -> tuple[Tensor, Tensor]:
    """Every picture below a folder, normalised, and its class."""
    images, labels = [], []
    for label, inner in enumerate(sorted(folder.iterdir())):
        for file in sorted(inner.iterdir()):
            picture = Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
            images.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
            labels.append(label)
    return (torch.stack(images) / 255 - 0.5) / 0.5, torch.tensor(labels)


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    net.eval()
    with torch.no_grad():
        right = sum(int((net(a).argmax(1) == b).sum()) for a, b in zip(x.split(64), y.split(64), strict=True))
    return right / len(y)


def train(net: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    steps = epochs * -(-len(x) // 32)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")


def main(words: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("work"))
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--limit", type=int, help="pictures of a class at most")
    given = parser.parse_args(words)

    divide(given.photographs, given.out, given.limit)
    x, y = load(given.out / "train", given.size)
    val_x, val_y = load(given.out / "val", given.size)
    torch.manual_seed(0)
    net = ResNet(int(y.max()) + 1)
    train(net, x, y, given.epochs)
    found = accuracy(net, val_x, val_y)
    print(f"validation accuracy {found:.4f}")
    torch.save({"epoch": given.epochs, "model": net.state_dict()}, given.out / "best.pt")
    return found


if __name__ == "__main__":
    main()
