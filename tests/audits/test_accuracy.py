"""The error of the model's own head, and the interval around it."""

import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from clearance import load_dataset
from clearance.audits import Accuracy
from clearance.audits._audit import wilson_interval
from clearance.audits.accuracy import best_order
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier
from data.bayes import bayes_error, log_posterior


@pytest.mark.parametrize(
    ("wrong", "images"), [(0, 1), (1, 1), (0, 497), (1, 497), (33, 497), (248, 497), (497, 497)]
)
def test_interval_is_that_of_scipy(wrong, images):
    expected = binomtest(wrong, images).proportion_ci(0.95, method="wilson")
    assert wilson_interval(wrong, images) == pytest.approx((expected.low, expected.high), abs=1e-12)


class BayesHead(nn.Module):
    """The true log posterior of a Gaussian world; the weight is there because a classifier has one."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, rows):
        return log_posterior(self.world, rows) + self.weight


def test_the_bayes_classifier_has_the_bayes_error():
    world = GaussianClasses(class_count=3, shape=(1, 2, 3), separation=2.0, noise=0.05)
    model = Classifier(nn.Flatten(), BayesHead(world))
    found = Accuracy()(model, world.images(5, seed=0), world.images(4000, seed=1)).measurements
    error = {m.context["split"]: m for m in found}["test"]
    deviation = (bayes_error(world) * (1 - bayes_error(world)) / 12000) ** 0.5
    assert error.value == pytest.approx(bayes_error(world), abs=4 * deviation)
    assert error.n == 12000


class Shuffled(nn.Module):
    """The head with its outputs in another order."""

    def __init__(self, head, order):
        super().__init__()
        self.head, self.order = head, order

    def forward(self, rows):
        return self.head(rows)[:, self.order]


def of_test(found, name):
    return [m for m in found.measurements if m.name == name and m.context["split"] == "test"]


def test_outputs_in_another_order_are_found_with_the_order_and_the_error_that_it_gives():
    world = GaussianClasses(class_count=4, shape=(1, 2, 3), separation=2.0, noise=0.05)
    train, test = world.images(100, seed=0), world.images(500, seed=1)
    straight = Accuracy()(Classifier(nn.Flatten(), BayesHead(world)), train, test)
    assert of_test(straight, "error_in_another_order") == []
    shuffled = Classifier(nn.Flatten(), Shuffled(BayesHead(world), torch.tensor([2, 0, 3, 1])))
    found = Accuracy()(shuffled, train, test)
    (reordered,) = of_test(found, "error_in_another_order")
    assert reordered.value == of_test(straight, "error")[0].value < 0.5 < of_test(found, "error")[0].value
    (order,) = [exhibit for exhibit in found.exhibits if exhibit.name == "order"]
    assert order.columns == {"class": list(test.classes), "output": [1, 3, 0, 2]}
    assert of_test(found, "largest_class") == []  # the order says why


def test_an_order_that_is_better_by_chance_alone_is_not_called_the_right_one():
    torch.manual_seed(0)
    train, test = load_dataset("digits"), load_dataset("digits", "test")
    untrained = Classifier(nn.Flatten(), nn.Linear(64, 10))
    found = Accuracy()(untrained, train, test)
    order = best_order(untrained(train.images).argmax(1), train.labels, 10)
    right = (untrained(test.images).argmax(1) == order[test.labels]).double().mean()
    assert 1 - right < of_test(found, "error")[0].low
    assert of_test(found, "error_in_another_order") == []


class Named(nn.Module):
    """Names the class that a test writes into the pixel, in tenths."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, rows):
        return nn.functional.one_hot((10 * rows).round().long().flatten(), 5) * self.weight


@pytest.mark.parametrize(
    ("sizes", "right", "hardly"),
    [
        ([100] * 5, 100, True),
        ([100] * 5, 139, True),  # nine tenths of 80 % are 360 wrong images of 500
        ([100] * 5, 141, False),
        ([460, 10, 10, 10, 10], 463, False),  # of 8 % 36, and nine tenths of every class are right
    ],
)
def test_hardly_better_than_always_naming_the_largest_class(sizes, right, hardly):
    labels = torch.repeat_interleave(torch.arange(5), torch.tensor(sizes))
    # mistakes go round all other classes, so that no other order of the outputs is better
    wrong = (labels + 1 + torch.arange(500) % 4) % 5
    mixed = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    named = torch.where(mixed < right, labels, wrong)
    data = ImageSet((named / 10).view(500, 1, 1, 1), labels, tuple("abcde"))
    found = Accuracy()(Classifier(nn.Flatten(), Named()), data, data)
    shares = of_test(found, "largest_class")
    assert [(one.value, one.n) for one in shares] == ([(sizes[0] / 500, 500)] if hardly else [])


def test_a_network_that_nearly_always_names_the_largest_class_is_hardly_better():
    labels = torch.repeat_interleave(torch.arange(5), torch.tensor([460, 10, 10, 10, 10]))
    named = torch.where(torch.arange(500) == 499, labels, 0)  # one of the rare ones is found
    data = ImageSet((named / 10).view(500, 1, 1, 1), labels, tuple("abcde"))
    (share,) = of_test(Accuracy()(Classifier(nn.Flatten(), Named()), data, data), "largest_class")
    assert share.value == 0.92


def test_a_few_images_that_are_all_right_are_no_reason_to_doubt():
    labels = torch.tensor([0] * 30 + [1, 2, 3, 4])
    data = ImageSet((labels / 10).view(34, 1, 1, 1), labels, tuple("abcde"))
    found = Accuracy()(Classifier(nn.Flatten(), Named()), data, data)
    assert (of_test(found, "error")[0].value, of_test(found, "largest_class")) == (0, [])


class FirstPixel(nn.Module):
    """Logits that a test writes into the pixels."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, rows):
        return torch.where(rows < 0.9, rows * self.weight, torch.nan)


def test_images_are_counted_one_by_one_and_nan_is_wrong():
    pixels = torch.tensor([[0.1, 0.2], [0.2, 0.1], [0.3, 0.4], [0.0, 1.0], [0.5, 0.2]])  # the fourth is NaN
    labels = torch.tensor([1, 0, 0, 1, 0])
    data = ImageSet(pixels.view(5, 1, 1, 2), labels, ("a", "b"))
    found = Accuracy()(Classifier(nn.Flatten(), FirstPixel()), data.subset(torch.tensor([0, 1])), data)
    values = {(m.name, m.context["split"]): (m.value, m.n) for m in found.measurements}
    assert values == {
        ("error", "train"): (0.0, 2),
        ("error", "test"): (0.4, 5),
        ("not_finite", "test"): (0.2, 5),
    }


def test_which_images_are_wrong_is_kept_with_what_tells_them_from_others():
    pixels = torch.tensor([[0.1, 0.2], [0.2, 0.1], [0.3, 0.4], [0.0, 1.0], [0.5, 0.2]])  # the fourth is NaN
    data = ImageSet(pixels.view(5, 1, 1, 2), torch.tensor([1, 0, 0, 1, 0]), ("a", "b"))
    shown, which = Accuracy()(
        Classifier(nn.Flatten(), FirstPixel()), data.subset(torch.tensor([0, 1])), data
    ).exhibits
    assert (which.name, which.columns["value"]) == ("not_finite", [0, 0, 0, 1, 0])
    assert (shown.name, shown.kind) == ("error", "per_image")
    assert shown.columns["value"] == [0, 0, 1, 1, 0]
    assert shown.context == {"split": "test", "images": data.digest()[:16]}
