"""`audit` with audits that come as objects, with settings of their own, among names."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import clearance as cl
from clearance.audits import (
    Accuracy,
    Audit,
    Findings,
    MinimalPerturbation,
    OutOfDistribution,
    Performance,
    Robustness,
)
from clearance.data import gaussian_images, open_images
from clearance.experiments.audit import AuditRequest, InMemory
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.catalogue import AUDITS
from clearance.heads import MLP
from clearance.models import black_box
from clearance.vocabulary import Exhibit, Measurement

MINE = Measurement("mine", "x", 1.0, "count", 3)
BAD_VALUE: Any = {"value": torch.tensor(1.0)}
BAD_CONTEXT: Any = {"context": {"k": None}}
QUICK: Any = {"epsilons": {"inf": (0.03,)}, "steps": 3, "queries": 5}


class MeanPixel(Audit):
    """An audit of one's own, which the catalogue does not know."""

    name = "mean_pixel"

    def examine(self, subject):
        value = float(subject.test.images.mean())
        return Findings((Measurement("mean_pixel", "mean", value, "fraction", 1, better="neither"),))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), MLP((6, 3)))


def audited(model, audits, **given):
    train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    return cl.audit(model, train=train, test=test, audits=audits, **given)


def radii(card):
    return {m.context["epsilon"] for m in card.measurements if m.name == "robust_accuracy"}


def test_an_audit_may_come_with_settings_of_its_own(model):
    card = audited(model, ["accuracy", Robustness(**QUICK)])
    assert radii(card) == {0.03}
    assert "accuracy" in {m.audit for m in card.measurements}


def test_also_from_what_can_be_read_once(model):
    """A generator had been read for the names, and its settings lost."""
    once: Any = (each for each in [Robustness(**QUICK)])
    assert radii(audited(model, once)) == {0.03}


def test_two_settings_of_one_audit_are_two_calls(model):
    both = [Robustness(epsilons={"inf": (epsilon,)}) for epsilon in (0.03, 0.1)]
    asks: Any = (both, [both[0], "robustness"])
    for asked in asks:
        with pytest.raises(ValueError, match="`audits` must have each audit once; got 'robustness' twice"):
            audited(model, asked)


def test_all_of_them_and_one_with_settings():
    own = Robustness(**QUICK)
    found = {audit.name: audit for audit in AuditPlan.of(["all", own], unknown=False).audits}
    assert {*found} == {*AUDITS} - {"out_of_distribution"}
    assert found["robustness"] is own
    for asked in (["all"], ["all", "few-labels"], ["accuracy", "all"]):
        assert {*AuditPlan.of(asked).names} == {*AUDITS}


def test_an_audit_that_nobody_else_knows(model):
    card = audited(model, [MeanPixel(), "accuracy"])
    assert [m.name for m in card.measurements if m.audit == "mean_pixel"] == ["mean"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda: None, "`examine` of mine must return Findings; got NoneType"),
        (lambda: Findings((MINE, MINE)), "each measurement once; got 'x' twice"),
        (lambda: Findings((replace(MINE, **BAD_VALUE),)), "must be a number; got Tensor"),
        (
            lambda: Findings((replace(MINE, **BAD_CONTEXT),)),
            "must hold text and numbers; got k of type NoneType",
        ),
        (lambda: Findings((), (Exhibit("mine", "c", "curve", {"x": [torch.ones(1)]}, "c"),)), "got Tensor"),
    ],
)
def test_an_audit_that_returns_what_no_report_can_keep_costs_no_other(model, returned, message, tmp_path):
    class Mine(Audit):
        name = "mine"

        def examine(self, subject):
            return returned()

    card = audited(model, ["accuracy", Mine()])
    assert "accuracy" in {m.audit for m in card.measurements}
    assert message in str(card.report.recipe["audits_left_out"])
    card.save_folder(tmp_path)


@pytest.mark.parametrize("given", [{"seed": 1.5}, {"seed": -1}, {"name": None}])
def test_what_a_report_cannot_keep_is_refused_before_anything_is_measured(model, given):
    with pytest.raises(ValueError, match=f"`{next(iter(given))}` must be"):
        audited(model, ["accuracy"], **given)


def test_slices_are_made_from_a_file():
    with pytest.raises(ValueError, match=r"`slices` must be made by .*read_slices; got str.*--slices"):
        Performance(slices="sites.csv")  # type: ignore[arg-type]


@pytest.mark.parametrize("opened", [cl.wrap, black_box])
def test_a_model_that_casts_its_images_keeps_its_precision(opened):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 3)).bfloat16()

        def forward(self, images):
            return self.net(images.bfloat16())

    torch.manual_seed(0)
    module = Half().eval()
    card = audited(
        opened(module, example=gaussian_images().images[:8], verbose=False), ["accuracy", "calibration"]
    )
    assert {m.audit for m in card.measurements} == {"accuracy", "calibration"}
    assert module.net[1].weight.dtype is torch.bfloat16


def test_unknown_images_may_come_with_their_audit(model):
    other = gaussian_images(per_class=10, seed=2).unlabelled()
    rows = {m.name: m for m in audited(model, [OutOfDistribution(other=other)]).measurements}
    assert rows["rejected"].n == 30
    with pytest.raises(ValueError, match="audit 'out_of_distribution' needs out-of-distribution images"):
        audited(model, [OutOfDistribution()])
    with pytest.raises(ValueError, match=r"`data` must be folder:PATH.*got Tensor"):
        audited(model, [OutOfDistribution(other=torch.rand(30, 1, 8, 8))])  # type: ignore[arg-type]


def test_unknown_images_that_are_test_images_are_refused(model):
    test = gaussian_images(per_class=20, seed=1)
    mixed = torch.cat([test.images[:5], gaussian_images(per_class=5, seed=2).images])
    with pytest.raises(ValueError, match=r"5 of these 20 are test images, pixel for pixel"):
        cl.audit(model, train=gaussian_images(per_class=20, seed=0), test=test, unknown=mixed, verbose=False)


@pytest.fixture
def folder(tmp_path):
    """Three classes of pictures, 12 pixels high and 10 wide."""
    for part in ("train", "test"):
        images = (gaussian_images(per_class=8, seed=len(part)).images * 255).byte()
        for place, (label, image) in enumerate(
            zip(torch.arange(3).repeat_interleave(8), images, strict=True)
        ):
            (tmp_path / part / f"{label}").mkdir(parents=True, exist_ok=True)
            pixels = torch.nn.functional.pad(image[0], (1, 1, 2, 2)).numpy()
            Image.fromarray(pixels).save(tmp_path / part / f"{label}" / f"{place}.png")
    return {part: f"folder:{tmp_path / part}" for part in ("train", "test")}


def error_of(card):
    (found,) = [m.value for m in card.measurements if (m.name, m.context.get("split")) == ("error", "test")]
    return found


def pooled(channels):
    """Takes images of any size."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()


def test_pictures_of_another_size_than_the_example_are_refused_until_one_says_how_to_resize_them(folder):
    net, example = pooled(3), torch.rand(2, 3, 8, 8)
    model = cl.wrap(net, example=example, mean=0.3, std=0.3, verbose=False)
    with pytest.raises(
        ValueError, match=r"are 10x12, and the example of the model was 8x8.*size=8, short_side=8"
    ):
        cl.audit(model, **folder, audits=["accuracy"], verbose=False)
    how = cl.data.Preprocessing(size=8, short_side=8)
    whole = cl.data.Preprocessing((0.3,), (0.3,), 8, 8)
    test = open_images(folder["test"], how)
    right = (net((test.images - 0.3) / 0.3).argmax(1) == test.labels).double().mean()
    for model in (
        cl.wrap(net, example=example, mean=0.3, std=0.3, preprocessing=how, verbose=False),
        cl.wrap(net, example=example, preprocessing=whole, verbose=False),
        cl.wrap(net, example=torch.rand(2, 3, 16, 16), preprocessing=whole, verbose=False),
    ):
        card = cl.audit(model, **folder, audits=["accuracy"], verbose=False)
        assert error_of(card) == pytest.approx(1 - float(right))


def test_other_images_of_another_size_than_the_example_are_warned_of():
    """They are never resized, and a network that pools takes images of every size."""
    train, test = gaussian_images(per_class=8, seed=0), gaussian_images(per_class=8, seed=1)
    how = cl.data.Preprocessing(size=16, short_side=16)
    model = cl.wrap(pooled(1), example=torch.rand(2, 1, 16, 16), preprocessing=how, verbose=False)
    with pytest.warns(UserWarning, match="images are 8x8, and the example of the model was 16x16"):
        cl.audit(model, train=train, test=test, audits=["accuracy"], verbose=False)


def test_grey_images_become_colour_for_a_network_of_three_channels():
    train, test = gaussian_images(per_class=8, seed=0), gaussian_images(per_class=8, seed=1)
    net = pooled(3)
    model = cl.wrap(net, example=torch.rand(2, 3, 8, 8), verbose=False)
    card = cl.audit(model, train=train, test=test, audits=["accuracy"], verbose=False)
    right = (net(test.images.expand(-1, 3, -1, -1)).argmax(1) == test.labels).double().mean()
    assert error_of(card) == pytest.approx(1 - float(right))


def test_no_audit_twice_among_those_with_defaults(model):
    assert AuditPlan.of([Accuracy(), "class_scatter"], unknown=False).names == ("accuracy", "class_scatter")


def test_audits_share_one_pass_over_the_images(model):
    """Many audits send as many images through the network as one does."""
    train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    seen = {}
    for audits in (["accuracy"], ["accuracy", "performance", "mistakes", "calibration", "class_scatter"]):
        images = []
        hook = model.extractor.register_forward_hook(lambda _, given, __: images.append(len(given[0])))  # noqa: B023
        cl.audit(model, train=train, test=test, audits=audits)
        hook.remove()
        seen[len(audits)] = sum(images)
    assert seen[5] == seen[1] < 1.5 * (len(train) + len(test))


def wide(channels):
    """A network of 8 x 8 x 9 x channels^2 multiply-adds an image, and a few more."""
    body = [nn.Conv2d(1, channels, 1), nn.Conv2d(channels, channels, 3, padding=1), nn.AdaptiveAvgPool2d(1)]
    return cl.Classifier(nn.Sequential(*body, nn.Flatten()), MLP((channels, 3)))


@pytest.mark.parametrize(("channels", "images"), [(32, 200), (200, 128), (240, 64), (400, 64)])
def test_a_large_network_is_asked_fewer_images_for_the_smallest_change(channels, images):
    train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=70, seed=1)
    source = InMemory(wide(channels), train, test)
    said: list[str] = []

    def chosen(**asked: Any) -> Any:
        audit: Any = source.target(AuditRequest(say=said.append, **asked)).audits[0]
        return audit.images

    assert chosen(audits=["minimal_perturbation"]) == images
    assert len(said) == (images < 200)
    assert chosen(audits=["minimal_perturbation"], images=30) == 30
    assert chosen(audits=[MinimalPerturbation(images=50)]) == 50
    given = {"minimal_perturbation": {"images": 70}}
    assert chosen(audits=["minimal_perturbation"], settings=given) == 70


def test_a_large_network_says_nothing_of_fewer_images_where_there_are_no_more():
    source = InMemory(wide(400), gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1))
    said: list[str] = []
    source.target(AuditRequest(say=said.append, audits=["minimal_perturbation"]))
    assert said == []


def test_outputs_without_a_class_are_said_on_the_page(tmp_path):
    torch.manual_seed(0)
    network = cl.Classifier(nn.Flatten(), nn.Linear(64, 5))
    card = cl.audit(
        network, train=gaussian_images(per_class=20, seed=0), test=gaussian_images(per_class=20, seed=1),
        audits=["accuracy"], verbose=False,
    )  # fmt: skip
    assert "the first 3 are taken as the classes" in " ".join(
        re.sub("<[^>]+>", "", card.save(tmp_path / "page.html").read_text("utf-8")).split()
    )
