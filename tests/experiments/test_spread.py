"""Audits on several workers: the same numbers as in one process, to the bit, whoever dies on the way."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import Robustness
from clearance.data import ImageSet
from clearance.experiments.engines import ONE_TASK, SUBMISSIONS, LostError, Processes, TaskError
from clearance.experiments.spread import Spread, compute

SPLIT = [
    Robustness(epsilons={"inf": (0.05, 0.1), "2": (0.3,)}, steps=3, queries=8),
    cl.audits.MinimalPerturbation(images=600, steps=3, queries=5),
    cl.audits.BoundaryDistance(norms=("2",), layers=("input", "features"), searched=150, steps=3),
    cl.audits.Accuracy(),
]


class Rounding(nn.Module):
    """A layer whose gradient is zero: gradients past it are tried too."""

    def forward(self, images):
        return (8 * images).round() / 8


class Quantised(nn.Module):
    """Values in eightieths of the batch's largest: an image's logits depend, a little, on the other images."""

    def forward(self, images):
        step = images.detach().abs().amax() / 80
        return images + ((images / step).round() * step - images).detach()


@pytest.fixture(scope="module")
def images():
    """Two sets of 600 images of three classes, and what a few steps of training make of them."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(1200) % 3
    pixels = (torch.rand(1200, 1, 4, 4, generator=draw) * 0.5 + labels.view(-1, 1, 1, 1) * 0.15).clamp(0, 1)
    whole = ImageSet(pixels, labels, ("a", "b", "c"))
    return whole.subset(torch.arange(600)), whole.subset(torch.arange(600, 1200))


def trained(images, *first):
    torch.manual_seed(0)
    module = nn.Sequential(*first, nn.Flatten(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(images.images), images.labels).backward()
        optimizer.step()
    return cl.wrap(module, example=images.images[:2])


def everything(card):
    """All numbers, and all exhibits, of a card."""
    return [repr(m) for m in card.measurements], [repr(e) for e in card.exhibits]


@pytest.mark.parametrize(
    ("first", "engine"),
    [((), 2), ((Quantised(),), 1), pytest.param((Rounding(),), 1, marks=pytest.mark.slow)],
)
def test_numbers_do_not_depend_on_the_number_of_workers(images, first, engine):
    model = trained(images[0], *first)
    here = cl.audit(model, train=images[0], test=images[1], audits=SPLIT, verbose=False)
    there = cl.audit(model, train=images[0], test=images[1], audits=SPLIT, verbose=False, engine=engine)
    assert everything(there) == everything(here)


def falls_once(marker: Path, number: int) -> int:
    """A part whose worker dies the first time."""
    if number == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def falls_always(marker: Path, number: int) -> int:
    if number == 1:
        with marker.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_that_dies_is_replaced_and_its_part_done_again(tmp_path):
    with Processes(2, fresh=False) as engine:
        assert Spread(engine)(falls_once, [(tmp_path / "once", n) for n in range(3)]) == [0, 1, 2]


def test_a_part_that_always_kills_its_worker_is_an_error(tmp_path):
    with Processes(1, fresh=False) as engine, pytest.raises(LostError, match="SIGKILL"):
        Spread(engine)(falls_always, [(tmp_path / "always", 1)])
    assert (tmp_path / "always").read_text() == "x" * SUBMISSIONS


def test_what_a_part_raises_is_raised_and_what_does_not_arrive_is_refused():
    with Processes(1, fresh=False) as engine:
        with pytest.raises(TaskError, match="ValueError: invalid literal"):
            Spread(engine)(int, [("4",), ("four",)])
        with pytest.raises(ValueError, match=r"workers can do its tasks; Processes cannot: .*pickle"):
            Spread(engine)(len, [(lambda: None,)])


def test_any_executor_will_do(images):
    model = trained(images[0])
    audits = [cl.audits.Accuracy()]
    with ThreadPoolExecutor(2) as engine:
        there = cl.audit(model, train=images[0], test=images[1], audits=audits, verbose=False, engine=engine)
    here = cl.audit(model, train=images[0], test=images[1], audits=audits, verbose=False)
    assert everything(there) == everything(here)


def test_a_run_in_a_thread_may_share_out_its_audits():
    with ONE_TASK:
        assert compute(pow, 2, 3) == 8
