"""Several processes: centres and mixtures of two halves of a batch move like those of the whole.

Run as a script this file is one of two processes.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clearance import Outputs
from clearance.data import gaussian_images
from clearance.heads import GaussianMixture
from clearance.losses import CenterLoss, GaussianMixtureLoss
from clearance.models import Classifier
from two_processes import close, play, told_by_both  # type: ignore[import-not-found]  # see pytest's path

DATA = gaussian_images(class_count=3, per_class=8, shape=(1, 4, 4))
COVARIANCES = ("class_diagonal", "diagonal")

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)


def share_of_a_batch(rank, count):
    images, labels = DATA.batch(torch.arange(0, 24, 2))
    share = slice(rank * 12 // count, (rank + 1) * 12 // count)
    return images[share], labels[share]


def centres(rank, count=2):
    """After three of the paper's updates; the halves hold classes in unequal numbers."""
    images, labels = share_of_a_batch(rank, count)
    loss, features = CenterLoss(16, 3), images.flatten(1)
    for _ in range(3):
        loss.after_step(Outputs(features, features[:, :3], nn.Identity()), labels)
    return {"centres": loss.centres.double().tolist()}


class WithLoss(nn.Module):
    """What torch's own wrapper wants: the loss inside the wrapped module's forward pass."""

    def __init__(self, covariance):
        super().__init__()
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU())
        self.model = Classifier(extractor, GaussianMixture(6, 3, covariance), 0.5, 0.25)
        self.loss = GaussianMixtureLoss(0.3)

    def forward(self, images, labels):
        return self.loss(self.model.outputs(images), labels).total


def gradients(rank, count=2):
    """Of one batch, each process with its share of it."""
    found: dict[str, list[float]] = {}
    for covariance in COVARIANCES:
        module = WithLoss(covariance)
        place = DistributedDataParallel(module) if count > 1 else module
        place(*share_of_a_batch(rank, count)).backward()
        for name, one in module.named_parameters():
            if one.grad is not None:
                found[f"{covariance} {name}"] = one.grad.double().tolist()
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each of two processes has to tell."""
    return told_by_both(__file__, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("scene", [centres, gradients])
def test_two_halves_of_a_batch_are_like_the_whole(told, scene):
    alone = scene(0, count=1)
    assert any(torch.tensor(values).any() for values in alone.values())
    for each in told:
        close(each[scene.__name__], alone)


if __name__ == "__main__":
    play((centres, gradients))
