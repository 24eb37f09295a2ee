"""New classes: measured on them alone, with the heads of the co-adaptation audit."""

import pytest
from torch import nn

from clearance.audits import CoAdaptation, NewClasses
from clearance.data.subsets import split_classes
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=6, shape=(1, 4, 4), separation=3.0, noise=0.05)


def by_head(findings):
    """Measurements by head and number of images."""
    return {(m.context["head"], int(m.context["per_class"])): m for m in findings.measurements}


@pytest.fixture
def halves():
    train, test = WORLD.images(per_class=20, seed=0), WORLD.images(per_class=30, seed=1)
    known, new = split_classes(train, (1, 3, 5))
    known_test, new_test = split_classes(test, (1, 3, 5))
    return (known, known_test), (new, new_test)


def pixels():
    return Classifier(nn.Flatten(), nn.Linear(16, 3))


def test_the_errors_are_those_of_heads_on_the_new_classes_alone(halves):
    known, new = halves
    audit = NewClasses(per_class=(1, 5), repetitions=(6, 3), hidden=(8,))
    found = by_head(audit(pixels(), known[0], known[1], new_classes=new))
    same = CoAdaptation(per_class=(1, 5), repetitions=(6, 3), hidden=(8,), all_images=False)
    wanted = {
        (m.context["head"], int(m.context["samples"]) // 3): m
        for m in same(pixels(), *new).measurements
        if m.name == "error"
    }
    assert set(found) == set(wanted)
    for key, measurement in found.items():
        assert measurement.value == wanted[key].value
        assert measurement.n == {1: 6, 5: 3}[key[1]]
    other = by_head(audit(pixels(), known[0], known[1], new_classes=known))
    assert any(other[key].value != found[key].value for key in found)


def test_without_new_classes_nothing_is_measured(halves):
    assert NewClasses()(pixels(), *halves[0]).measurements == ()


def test_one_new_class_alone_is_nothing_to_tell_apart():
    known, new = split_classes(WORLD.images(per_class=9, seed=0), (4,))
    model = Classifier(nn.Flatten(), nn.Linear(16, 5))
    assert NewClasses()(model, known, known, new_classes=(new, new)).measurements == ()


def test_new_classes_of_another_kind_are_refused(halves):
    (known, _), (new, _) = halves
    with pytest.raises(ValueError, match="same classes"):
        NewClasses()(pixels(), known, known, new_classes=(known, new))
    with pytest.raises(ValueError, match="repetitions"):
        NewClasses(per_class=(1, 5), repetitions=(6,))
