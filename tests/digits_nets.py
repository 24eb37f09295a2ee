"""Small networks on the digits for tests of attacks, trained once a session."""

import functools
import math

import torch
from torch import Tensor, nn

from clearance.data import ImageSet, read_digits
from clearance.losses import CrossEntropyLoss, LargeMarginLoss, Loss
from clearance.models import Classifier


@functools.cache
def digits() -> tuple[ImageSet, ImageSet]:
    """Training and test images."""
    return read_digits("train"), read_digits("test")


@functools.cache
def network(seed: int = 0) -> Classifier:
    """Two layers of 48 on 8x8 pixels, smooth enough to train in a second; about 96 % right."""
    return trained(digits()[0], seed)


@functools.cache
def margin_network() -> Classifier:
    """The same, trained for a margin of a tenth of every pixel."""
    return trained(digits()[0], loss=LargeMarginLoss(("input",), math.inf, 0.1, layer_weights=10.0))


def trained(
    train: ImageSet,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    loss: Loss | None = None,
) -> Classifier:
    """The same on these images and labels, fed with this normalisation; by cross-entropy if nothing is said."""
    terms = CrossEntropyLoss() if loss is None else loss
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU())
        model = Classifier(extractor, nn.Linear(48, 10), mean=mean, std=std)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(150):
            optimizer.zero_grad()
            terms(model.outputs(train.images, terms.layers), train.labels).total.backward()
            optimizer.step()
    model.zero_grad()
    return model.eval()


class Times(nn.Module):
    """Logits times a constant: the same classifier."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Louder logits."""
        return self.factor * self.model(images)


class RoundingFront(nn.Module):
    """A network that sees its images in eighths: no gradient reaches a pixel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Logits of round(8x) / 8."""
        return self.model((8 * images).round() / 8)
