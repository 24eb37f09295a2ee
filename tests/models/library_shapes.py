"""Small models in the shapes of torchvision, timm and Hugging Face, for wrap to cut."""

import collections
from dataclasses import dataclass

import torch
from torch import nn

Outputs = collections.namedtuple("Outputs", ["logits", "aux_logits"])


class Aux(nn.Module):
    """GoogLeNet and Inception: in training an auxiliary head, and a named tuple; `always` returns it ever."""

    def __init__(self, always=False):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.aux = nn.Linear(6, 5)
        self.fc = nn.Linear(6, 5)
        self.always = always

    def forward(self, x):
        features = self.conv(x).mean((2, 3))
        if self.training or self.always:
            return Outputs(self.fc(features), self.aux(features.tanh()))
        return self.fc(features)


class ModelOutput(collections.OrderedDict):
    """As Hugging Face's: a dictionary whose entries are attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


@dataclass
class DataclassOutput:
    logits: torch.Tensor
    loss: None = None


class ViT(nn.Module):
    """Tokens; the head reads the first; `kind` makes what is returned."""

    def __init__(self, kind=ModelOutput):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.classifier = nn.Linear(8, 5)
        self.kind = kind

    def forward(self, x):
        tokens = self.layer(self.patches(x).flatten(2).transpose(1, 2))
        return self.kind(logits=self.classifier(tokens[:, 0]), hidden_states=(tokens,))


class SqueezeNet(nn.Module):
    """A convolution, then a ReLU, then pooling: not linear in pooled features."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 6, 3)
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Conv2d(6, 5, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


class NetworkInNetwork(nn.Module):
    """A 1x1 convolution, then global average pooling."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU())
        self.last = nn.Conv2d(6, 5, 1)

    def forward(self, x):
        return self.last(self.features(x)).mean((2, 3))


class PointHead(nn.Module):
    """timm's `use_conv`: pooling that keeps its axes, a 1x1 convolution, flattening."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 6, 3)
        self.gate = nn.Linear(6, 6)  # as in squeeze and excitation
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Conv2d(6, 5, 1)

    def forward(self, x):
        x = self.body(x)
        x = x * self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None]
        return self.fc(self.pool(x)).flatten(1)


class Distilled(nn.Module):
    """DeiT: two heads on two tokens, averaged in evaluation; SwiftFormer: on the same features."""

    def __init__(self, shared=False):
        super().__init__()
        self.shared = shared
        self.body = nn.Linear(192, 8)
        self.head = nn.Linear(8, 5)
        self.head_dist = nn.Linear(8, 5)

    def forward(self, x):
        x = self.body(x.flatten(1))
        return (self.head(x) + self.head_dist(x if self.shared else x.tanh())) / 2


class TwoTasks(nn.Module):
    """Two heads, both returned."""

    def __init__(self, kind=lambda a, b: (a, b)):
        super().__init__()
        self.body = nn.Linear(192, 8)
        self.species = nn.Linear(8, 5)
        self.colour = nn.Linear(8, 3)
        self.kind = kind

    def forward(self, x):
        x = self.body(x.flatten(1))
        return self.kind(self.species(x), self.colour(x))
