"""What bounds an audit: times, numbers of images, and the order and the end of the audits."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from clearance.audits import (
    Accuracy,
    Audit,
    BoundaryDistance,
    Findings,
    Likelihood,
    MinimalPerturbation,
    OutOfDistribution,
    Subject,
)
from clearance.data import gaussian_images
from clearance.experiments import bounded
from clearance.experiments.bounded import bounded_audits
from clearance.experiments.limits import Budget, Limits, looked_at, seconds_of, with_images
from clearance.experiments.pace import Pace, try_pace
from clearance.experiments.workload import Sizes, Work, work_of
from clearance.models import Classifier
from clearance.vocabulary import Measurement


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@dataclass(frozen=True)
class Takes(Audit):
    """An audit that takes a while by a clock of its own."""

    name: ClassVar[str] = "takes"
    question: ClassVar[str] = "How long?"
    clock: Clock
    seconds: float
    called: str = "takes"

    def examine(self, subject):
        self.clock.now += self.seconds
        return Findings((Measurement(self.called, "seconds", self.seconds, "seconds", 1),))


def taking(clock, name, seconds):
    """An audit of any name."""
    kind = type(name, (Takes,), {"name": name})
    return kind(clock, seconds, name)


@pytest.fixture
def subject():
    train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    return Subject(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)


@pytest.fixture
def clock(monkeypatch):
    """Estimates are exact at first: the work of an audit is a pass for each of its seconds."""
    clock = Clock()
    monkeypatch.setattr(bounded, "try_pace", lambda _: Pace(passes=1.0, gradients=0.0, steps=0.0, sums=0.0))
    monkeypatch.setattr(bounded, "work_of", lambda audit, _: Work(passes=audit.seconds))
    monkeypatch.setattr(bounded._Clerk, "_features", lambda _: Work())
    monkeypatch.setattr(bounded.time, "perf_counter", clock)
    return clock


def names(done):
    return [found.measurements[0].audit for found in done.findings]


class TestBudget:
    def test_the_most_useful_first_and_what_does_not_fit_is_left_out(self, subject, clock):
        audits = [
            taking(clock, *one)
            for one in (
                ("mine", 3.0),
                ("minimal_perturbation", 30.0),
                ("linear_probe", 5.0),
                ("accuracy", 2.0),
            )
        ]
        done = bounded_audits(subject, audits, Limits(budget=Budget(12.0, clock)))
        assert names(done) == [
            "accuracy",
            "linear_probe",
            "mine",
        ]  # the cheaper one after the dear one still fits
        (left,) = done.left_out
        assert (left.audit, left.why, left.seconds) == ("minimal_perturbation", "budget", 30.0)
        assert [audit.name for audit in done.audits] == names(done)

    def test_an_audit_that_has_begun_is_finished(self, subject, clock, monkeypatch):
        monkeypatch.setattr(bounded, "work_of", lambda audit, _: Work(passes=audit.seconds / 10))
        done = bounded_audits(
            subject, [taking(clock, "linear_probe", 50.0)], Limits(budget=Budget(12.0, clock))
        )
        assert names(done) == ["linear_probe"]
        assert not done.left_out

    def test_later_estimates_know_what_the_first_ones_missed(self, subject, clock, monkeypatch):
        """All take three times what is expected: the second one would fit by the first guess, but not by the second."""
        monkeypatch.setattr(bounded, "work_of", lambda audit, _: Work(passes=audit.seconds / 3))
        audits = [taking(clock, "accuracy", 30.0), taking(clock, "linear_probe", 30.0)]
        done = bounded_audits(subject, audits, Limits(budget=Budget(50.0, clock)))
        assert names(done) == ["accuracy"]
        assert done.left_out[0].seconds == pytest.approx(10 * (2 + 30) / (2 + 10), rel=0.05)

    def test_what_was_spent_before_the_first_audit_counts(self, subject, clock):
        budget = Budget(12.0, clock)
        clock.now += 10
        done = bounded_audits(
            subject, [taking(clock, "linear_probe", 5.0), taking(clock, "mine", 1.0)], Limits(budget=budget)
        )
        assert names(done) == ["mine"]

    def test_nothing_fits(self, subject, clock):
        with pytest.raises(
            ValueError, match=r"one audit; got 4 s, .* the cheapest audit would take about 5 s"
        ):
            bounded_audits(
                subject, [taking(clock, "a", 5.0), taking(clock, "b", 9.0)], Limits(budget=Budget(4.0, clock))
            )

    @pytest.mark.parametrize("text", ["", "5", "m5", "5 m", "1d", "5m 3", "-5m", "nan"])
    def test_what_is_no_time(self, text):
        with pytest.raises(ValueError, match="must be a time such as 90s, 5m, 2h or 1h30m"):
            seconds_of(text)

    @pytest.mark.parametrize("value", [0, -1.0, float("inf"), "0m"])
    def test_what_is_no_length(self, value):
        with pytest.raises(ValueError, match="`budget` must be a finite number above 0"):
            seconds_of(value)


class TestInterruption:
    def test_it_keeps_what_is_done_where_that_is_wanted(self, subject, clock):
        def stop(_):
            raise KeyboardInterrupt

        audits = [
            taking(clock, "accuracy", 1.0),
            taking(clock, "linear_probe", 1.0),
            taking(clock, "mine", 1.0),
        ]
        object.__setattr__(audits[1], "examine", stop)
        done = bounded_audits(subject, audits, Limits(keep=True))
        assert names(done) == ["accuracy"]
        assert [(left.audit, left.why) for left in done.left_out] == [
            ("linear_probe", "interrupted"),
            ("mine", "interrupted"),
        ]
        with pytest.raises(KeyboardInterrupt):
            bounded_audits(subject, audits, Limits())
        with pytest.raises(KeyboardInterrupt):  # nothing is done yet
            bounded_audits(subject, audits[1:], Limits(keep=True))


class TestImages:
    def test_audits_that_look_at_test_images_one_by_one(self):
        data = gaussian_images(class_count=3, per_class=50)
        audits: list[Any] = [
            Accuracy(),
            MinimalPerturbation(),
            BoundaryDistance(),
            Likelihood(),
            OutOfDistribution(),
        ]
        fewer: list[Any] = list(with_images(audits, 30, data))
        assert fewer[0] is audits[0]
        assert [audit.images for audit in fewer[1:]] == [30, 30, 30, 1000]
        assert (fewer[2].searched, fewer[3].adaptive_images) == (30, 30)
        more: list[Any] = list(with_images(audits, 100, data))
        assert (more[1].images, more[2].searched, more[3].adaptive_images) == (100, 100, 64)
        assert looked_at(fewer, data) == {
            "minimal_perturbation": 30,
            "boundary_distance": 30,
            "likelihood": 30,
        }
        assert looked_at(with_images(audits, 150, data), data) == {}
        assert with_images(audits, None, data) == audits

    @pytest.mark.parametrize("images", [0, 2, 2.5, True])
    def test_too_few_or_no_number(self, images):
        with pytest.raises(ValueError, match="`images` must be "):
            with_images([MinimalPerturbation()], images, gaussian_images(class_count=3))


class TestWork:
    SIZES = Sizes(train=1000, test=500, classes=10, width=64, pixels=64)

    def test_features_that_are_not_there_are_counted_once(self, subject, monkeypatch):
        monkeypatch.setattr(bounded, "try_pace", lambda _: Pace(1.0, 0.0, 0.0, 0.0))
        clerk = bounded._Clerk(subject, Budget(1e6))
        assert clerk._features() == Work(passes=120)
        subject.test_features  # noqa: B018 - extracts them
        assert clerk._features() == Work(passes=60)

    def test_every_audit_of_the_catalogue_has_some(self):
        from clearance.experiments.auditing import chosen_audits
        from clearance.experiments.catalogue import AUDITS

        for audit in chosen_audits(tuple(AUDITS)):
            work = work_of(audit, self.SIZES)
            assert min(work.passes, work.gradients, work.steps) >= 0
            assert work.sums > 0

    def test_twice_the_images_are_twice_the_gradients(self):
        for one, two in (
            (MinimalPerturbation(images=50), MinimalPerturbation(images=100)),
            (Likelihood(images=50), Likelihood(images=100)),
        ):
            few, many = (work_of(audit, self.SIZES).gradients for audit in (one, two))
            assert many > few
        assert work_of(MinimalPerturbation(images=9000), self.SIZES) == work_of(
            MinimalPerturbation(images=500), self.SIZES
        )

    def test_a_pace_is_tried_on_the_network_itself(self, subject):
        """Each call of the clock is a second later: a pass over 32 images takes one second, and so on."""
        ticks = iter(range(100))
        pace = try_pace(subject, lambda: float(next(ticks)))
        assert pace.passes == pace.gradients == 1 / 32
        assert pace.steps == 1 / 20
        assert pace.sums > 0

    def test_a_network_without_gradients_has_a_pace_too(self, subject):
        class Counts(nn.Module):
            def forward(self, x):
                return (x > 0.5).float().flatten(1)

        head = nn.Linear(64, 3)
        for parameter in head.parameters():
            parameter.requires_grad_(False)
        blind = Subject(Classifier(Counts(), head), subject.train, subject.test)
        assert try_pace(blind).gradients >= 0
        assert torch.isfinite(torch.tensor(try_pace(blind).sums))
