"""How long work takes on this machine: tried on a few images, and corrected by the audits that are done."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.audits import Subject
from clearance.audits.co_adaptation import head_training
from clearance.experiments.workload import Work
from clearance.heads import MLP, HeadStack, train_heads
from clearance.models._running import evaluating

_TRIED = 32  # images
_HEADS, _WIDTHS, _CLASSES = 8, (128, 128, 128), 10  # of the larger heads that are tried
_BATCH, _STEPS = 128, 20
_ENOUGH, _GOES = 0.25, 50  # seconds, and how often at most, that each thing is tried
_PRIOR = 2.0  # seconds of audits as estimated: so much must be seen before the correction counts by half
Clock = Callable[[], float]


@dataclass
class Pace:
    """Seconds for work, as the machine does it now.

    Args:
        passes: Seconds for an image through the network, its reading included.
        gradients: For an image there and back.
        steps: For an update of fresh heads.
        sums: For a multiplication with an addition.
    """

    passes: float
    gradients: float
    steps: float
    sums: float
    seen: float = 0.0
    expected: float = 0.0

    def seconds(self, work: Work) -> float:
        """How long it will take, by what was tried and what has been seen since.

        >>> pace = Pace(passes=0.01, gradients=0.03, steps=0.001, sums=1e-9)
        >>> round(pace.seconds(Work(passes=100, gradients=100)), 6)
        4.0
        >>> pace.learn(Work(gradients=1000), took=62.0)    # not 30
        >>> round(pace.seconds(Work(passes=100, gradients=100)), 6)
        8.0
        """
        return self._tried(work) * (_PRIOR + self.seen) / (_PRIOR + self.expected)

    def learn(self, work: Work, took: float) -> None:
        """Note how long it took."""
        self.seen += took
        self.expected += self._tried(work)

    def _tried(self, work: Work) -> float:
        return sum(getattr(self, name) * getattr(work, name) for name in vars(work))


def try_pace(subject: Subject, clock: Clock = time.perf_counter) -> Pace:
    """Some images through the network and back, and a few steps of small heads: together about a second."""
    images = min(_TRIED, len(subject.test))
    few = torch.arange(images)
    _there(subject, few[:2])  # the first call of a network prepares what later ones use
    passes = _timed(lambda: _there(subject, few), clock) / images
    gradients = _timed(lambda: _and_back(subject, few), clock) / images
    small, large = (_timed(_head_steps(*size), clock) / _STEPS for size in ((1, (8,)), (_HEADS, _WIDTHS)))
    widths = (*_WIDTHS, _CLASSES)
    sums = 3.0 * _HEADS * _BATCH * sum(first * second for first, second in itertools.pairwise(widths))
    return Pace(passes, gradients, small, max(large - small, 0.1 * large) / sums)


def _timed(work: Callable[[], object], clock: Clock) -> float:
    """Seconds for one go, the mean of as many as fit: what runs beside it slows short ones and long ones unevenly."""
    began = clock()
    took, goes = 0.0, 0
    while took < _ENOUGH and goes < _GOES:
        work()
        took, goes = clock() - began, goes + 1
    return took / goes


def _there(subject: Subject, rows: Tensor) -> None:
    pixels, _ = subject.test.batch(rows)
    with evaluating(subject.model):
        subject.model(pixels.to(subject.test.labels.device))


def _and_back(subject: Subject, rows: Tensor) -> None:
    pixels, _ = subject.test.batch(rows)
    with evaluating(subject.model), torch.enable_grad():
        leaf = pixels.to(subject.test.labels.device).requires_grad_()
        total = subject.model(leaf).amax(dim=1).sum()
        if total.requires_grad:  # a network that cannot be gone back through takes no longer than there
            torch.autograd.grad(total, leaf, allow_unused=True)


def _head_steps(heads: int, widths: tuple[int, ...]) -> Callable[[], object]:
    """Some updates of so many heads whose layers are so wide."""
    stream = generator(0, "pace")
    features = torch.randn(_BATCH, widths[0], generator=stream)
    with torch.random.fork_rng(devices=[]):
        architecture = MLP((*widths, _CLASSES))
    stack = HeadStack.initialised(architecture, heads, stream)
    how = head_training(_BATCH, 0.03, least_steps=_STEPS, most_steps=_STEPS)
    return lambda: train_heads(stack, features, torch.arange(_BATCH) % _CLASSES, how, generator=stream)
