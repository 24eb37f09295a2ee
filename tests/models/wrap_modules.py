"""Trained modules of many shapes, as other people write them, for wrap to cut."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.bn(self.conv(x)))


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.fc = nn.Linear(4, classes)  # registered first, runs last
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layers = nn.Sequential(Block(4), Block(4))
        self.projection = nn.Linear(4, 4)  # registered last, runs before
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x):
        x = self.layers(self.stem(x)).mean((2, 3)) + self.offset
        return self.fc(F.relu(self.projection(x), inplace=True))


class VGG(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(4))
        self.classifier = nn.Sequential(
            nn.Dropout(inplace=inplace),
            nn.Linear(16, 12),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(12, 8),
            nn.BatchNorm1d(8),
            nn.Linear(8, 5),
        )

    def forward(self, x):
        return self.classifier(F.dropout(self.features(x), training=self.training).flatten(1))


class Nested(nn.Module):
    """The head sits two modules deep and its size is read on the way."""

    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({"body": nn.Flatten(), "top": nn.ModuleList([nn.Linear(192, 5)])})

    def forward(self, x):
        head = self.model["top"].get_submodule("0")
        try:
            return head(self.model["body"](x).view(-1, head.in_features))
        except Exception as error:
            raise AssertionError("the module's own safety net must not meet the cut") from error


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5)
    )


class Around(nn.Module):
    """A linear head with something around it."""

    def __init__(self, forward):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.ReLU())
        self.fc = nn.Linear(5, 5)
        self.unused = nn.Linear(5, 5)
        self.way = forward

    def forward(self, x):
        return self.way(self, self.body(x))
