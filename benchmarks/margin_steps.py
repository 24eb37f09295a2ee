"""What the benchmark of the large-margin loss times: one step of training, and a loop as ports make it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from timing import DEVICE
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearance.losses import Loss
from clearance.losses.large_margin import margin_violation
from clearance.models import Classifier, resnet20
from clearance.tensors import LossTerms


@dataclass(frozen=True)
class Sizes:
    """Images a batch and rounds."""

    batch: int = 64
    rounds: int = 30


class Step:
    """One way to train one network: a step on a batch, and what it costs."""

    def __init__(self, network: Classifier, loss: Loss, batch: tuple[Tensor, Tensor]) -> None:
        self.model, self.loss = network.to(DEVICE), loss.to(DEVICE)
        self.images, self.labels = batch
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5, momentum=0.9)

    def __call__(self) -> None:
        """One update."""
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self.model.outputs(self.images, self.loss.layers)
        self.loss(outputs, self.labels).total.backward()
        self.optimizer.step()
        self.loss.after_step(outputs, self.labels)


class Looped(Loss):
    """The same loss as ports compute it: a sweep of its own for every layer and rival."""

    def __init__(self, layers: Sequence[str], k: int) -> None:
        super().__init__()
        self.layers, self.k = tuple(layers), k

    def forward(self, outputs: Any, labels: Tensor) -> LossTerms:
        """Cross-entropy and the mean margin."""
        z = outputs.logits
        rivals = z.detach().scatter(1, labels[:, None], -torch.inf).topk(self.k, dim=1).indices
        total = cross_entropy(z, labels)
        for name in self.layers:
            short = []
            for rival in rivals.unbind(dim=1):
                gap = z.gather(1, labels[:, None])[:, 0] - z.gather(1, rival[:, None])[:, 0]
                (g,) = torch.autograd.grad(gap.sum(), outputs.activations[name], retain_graph=True)
                short.append(margin_violation(gap / (g.flatten(1).norm(dim=1) + 1e-6), 1.0))
            total = total + torch.stack(short).amax(dim=0).mean() / len(self.layers)
        return LossTerms({"margin": total})


def batch_of(sizes: Sizes, channels: int, side: int, classes: int = 10) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(sizes.batch, channels, side, side, generator=stream)
    return images.to(DEVICE), (torch.arange(sizes.batch) % classes).to(DEVICE)


def residual(classes: int = 10) -> Classifier:
    torch.manual_seed(0)
    return Classifier(resnet20(3, 32), nn.Linear(64, classes), 0.5, 0.25).to(DEVICE)
