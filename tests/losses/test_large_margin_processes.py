"""Several processes: margins of two halves of a batch train like those of the whole.

Run as a script this file is one of two processes.
"""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clearance.data import gaussian_images
from clearance.losses import DistanceSettings, LargeMarginLoss
from clearance.models import Classifier
from clearance.training import EndToEnd, fit
from two_processes import close, play, told_by_both  # type: ignore[import-not-found]  # see pytest's path

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
DATA = gaussian_images(class_count=3, per_class=8, shape=(1, 4, 4))

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)


def model_of(seed):
    torch.manual_seed(seed)
    return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU()), nn.Linear(6, 3), 0.5, 0.25)


def numbers(module):
    return {name: value.double().tolist() for name, value in module.state_dict().items()}


def fixed(rank):
    """Given margins: each process begins with weights of its own, and all continue with the first's."""
    loss = LargeMarginLoss(("input", "extractor.1", "features"), gamma=0.8, top_k=2, every=2)
    return numbers(fit(model_of(rank), EndToEnd(loss), DATA, epochs=2, batch_size=12, optimizer=SGD).model)


def from_data(rank):
    """Margins from data are one number in all processes."""
    loss = LargeMarginLoss(("input",), gamma={"quantile": 0.5, "batches": 2})
    fit(model_of(0), EndToEnd(loss), DATA, epochs=1, batch_size=12, optimizer=SGD)
    return numbers(loss)


class WithLoss(nn.Module):
    """What torch's own wrapper wants: the loss inside the wrapped module's forward pass."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, images, labels):
        return self.loss(self.model.outputs(images, self.loss.layers), labels).total


WRAPPERS = {
    "plain": ({}, "detach"),
    "unused parameters looked for": ({"find_unused_parameters": True}, "detach"),
    "static graph": ({"static_graph": True}, "detach"),
    "denominator differentiated": ({}, "full"),
}


def wrapped(rank, count=2):
    """One gradient through DistributedDataParallel as it comes in kinds, each process with its share of 12 images."""
    return {name: _gradient(rank, count, *kind) for name, kind in WRAPPERS.items()}


def _gradient(rank, count, settings, denominator):
    images, labels = DATA.batch(torch.arange(0, 24, 2))
    share = slice(rank * 12 // count, (rank + 1) * 12 // count)
    loss = LargeMarginLoss(
        ("input", "extractor.1"), gamma=0.8, top_k=2, distance=DistanceSettings(denominator=denominator)
    )
    module = WithLoss(model_of(0), loss)
    place = DistributedDataParallel(module, **settings) if count > 1 else module
    place(images[share], labels[share]).backward()
    return {name: value.grad.double().tolist() for name, value in module.model.named_parameters()}


SCENES = (fixed, from_data, wrapped)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each of two processes has to tell."""
    return told_by_both(__file__, tmp_path_factory.mktemp("processes"))


def test_two_halves_of_a_batch_train_like_the_whole(told):
    alone = fixed(0)
    assert alone != numbers(model_of(0))
    for each in told:
        close(each["fixed"], alone)


def test_margins_from_data_are_averaged_over_processes(told):
    assert told[0]["from_data"] == told[1]["from_data"]
    assert told[0]["from_data"]["margins.total"][0] > 0


@pytest.mark.parametrize("kind", list(WRAPPERS))
def test_torchs_own_wrapper_averages_the_gradient_once(told, kind):
    """Sweeps ask for activations, so its hooks on parameters run in the final backward alone."""
    alone = wrapped(0, count=1)[kind]
    for each in told:
        close(each["wrapped"][kind], alone)


if __name__ == "__main__":
    play(SCENES)
