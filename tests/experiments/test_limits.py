"""What bounds an audit: times, numbers of images, and the order and the end of the audits."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
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
from clearance.experiments.audit_plan import AuditPlan, by_usefulness, fewer_images
from clearance.experiments.auditing import Budget, bounded_audits, seconds_of
from clearance.models import Classifier
from clearance.vocabulary import Measurement


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@dataclass(frozen=True)
class Takes(Audit):
    """An audit that takes a while by a clock of its own."""

    name: ClassVar[str] = "takes"
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
def clock():
    return Clock()


def names(done):
    return [found.measurements[0].audit for found in done.findings]


class TestBudget:
    def test_the_most_useful_first_and_none_starts_after_the_deadline(self, subject, clock):
        wanted = (("mine", 3.0), ("minimal_perturbation", 30.0), ("calibration", 5.0), ("accuracy", 2.0))
        audits = [taking(clock, *one) for one in wanted]
        done = bounded_audits(subject, by_usefulness(audits), Budget(12.0, clock))
        assert names(done) == [
            "accuracy",
            "calibration",
            "minimal_perturbation",
        ]  # the last began in time, and is finished
        assert [(left.audit, left.why) for left in done.left_out] == [("mine", "budget")]
        assert [audit.name for audit in done.audits] == names(done)

    def test_what_was_spent_before_the_first_audit_counts(self, subject, clock):
        budget = Budget(12.0, clock)
        clock.now += 10
        audits = [taking(clock, "linear_probe", 5.0), taking(clock, "mine", 1.0)]
        assert names(bounded_audits(subject, audits, budget)) == ["linear_probe"]

    def test_a_budget_that_is_spent_before_the_first_audit(self, subject, clock):
        budget = Budget(4.0, clock)
        clock.now += 5
        with pytest.raises(ValueError, match=r"time for one audit; got 4 s, and reading .* took 5\.0 s"):
            bounded_audits(subject, [taking(clock, "a", 5.0)], budget)

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
        done = bounded_audits(subject, audits, keep=True)
        assert names(done) == ["accuracy"]
        assert [(left.audit, left.why) for left in done.left_out] == [
            ("linear_probe", "interrupted"),
            ("mine", "interrupted"),
        ]
        with pytest.raises(KeyboardInterrupt):
            bounded_audits(subject, audits)
        with pytest.raises(KeyboardInterrupt):  # nothing is done yet
            bounded_audits(subject, audits[1:], keep=True)


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
        plan = AuditPlan.of(audits)
        fewer: Any = plan.resolved(test=data, images=30)
        assert fewer[0] is audits[0]
        assert [audit.images for audit in fewer[1:]] == [30, 30, 30, 1000]
        assert (fewer[2].searched, fewer[3].adaptive_images) == (30, 30)
        more: Any = plan.resolved(test=data, images=100)
        assert (more[1].images, more[2].searched, more[3].adaptive_images) == (100, 100, 64)
        limits = fewer_images(fewer, data)["fewer_images"]
        assert limits["audits"] == {"minimal_perturbation": 30, "boundary_distance": 30, "likelihood": 30}
        assert fewer_images(plan.resolved(test=data, images=150), data) == {}
        assert plan.resolved(test=data) == tuple(audits)

    @pytest.mark.parametrize("images", [0, 2, 2.5, True])
    def test_too_few_or_no_number(self, images):
        with pytest.raises(ValueError, match="`images` must be "):
            AuditPlan.of([MinimalPerturbation()]).resolved(test=gaussian_images(class_count=3), images=images)


def test_a_limit_of_test_images_is_not_one_of_the_sets_of_labels():
    data = gaussian_images(class_count=3, per_class=20)
    plan = AuditPlan.of(["label_suspects", "minimal_perturbation"])
    suspects, flips = plan.resolved(test=data, images=12)
    assert [vars(audit)["images"] for audit in (suspects, flips)] == [5000, 12]
