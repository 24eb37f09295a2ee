"""Attacks on images and models out of the ordinary, and what more work never makes worse."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearance.attacks import (
    APGD,
    FGSM,
    IFGSM,
    PGD,
    Attack,
    DeepFool,
    MinimumNorm,
    SquareSearch,
    TargetedAscent,
    as_attack,
    straight_through,
    transferred,
)
from clearance.attacks.losses import logit_margin
from clearance.attacks.transfer import has_steps
from clearance.audits import Robustness

OTHER_KIND: Any = (0, 1)
NO_RADIUS: Any = MinimumNorm()
WORD: Any = "plain"


def network(features: int = 16, classes: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, classes)).eval()


def shown(count: int = 32, *shape: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    return torch.rand(count, *(shape or (1, 4, 4)), generator=draws), torch.arange(count) % 4


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (PGD(0.1, steps=5), PGD(0.1, steps=5, restarts=4)),
        (PGD(0.1, steps=5, targets=1), PGD(0.1, steps=5, targets=3)),
        (PGD(0.3, 2, steps=5), PGD(0.3, 2, steps=5, restarts=4)),
    ],
)
def test_more_starts_never_make_worse_images_for_others(less, more):
    """What is broken on the source is tried to the end there, too, and may break further."""
    model, (images, labels) = network(), shown()
    before, after = (logit_margin(model(a.perturbed(model, images, labels)), labels) for a in (less, more))
    assert bool((after >= before - 1e-6).all())


@pytest.mark.parametrize(("epsilon", "norm"), [(0.1, math.inf), (0.5, 2), (1.0, 1)])
def test_the_square_search_keeps_the_best_of_all_its_queries_for_others(epsilon, norm):
    model, (images, labels) = network(), shown()
    margins: list[Tensor] = []

    def watched(x: Tensor) -> Tensor:
        logits = model(x)
        margins.append(logit_margin(logits[: len(images)], labels))
        return logits

    made = SquareSearch(epsilon, norm, queries=60).perturbed(watched, images, labels)
    tried = torch.stack(margins[-60:]).amax(dim=0)
    torch.testing.assert_close(logit_margin(model(made), labels), tried)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_in_half_precision_are_refused(dtype):
    images, labels = shown()
    with pytest.raises(TypeError, match=r"must be float32 or float64, .* Give images\.float\(\)"):
        PGD(0.1)(network().to(dtype), images.to(dtype), labels)


STEEP = {
    **{f"{kind.__name__}, norm {norm:g}": kind(epsilon, norm) for kind in (FGSM, IFGSM, PGD, APGD)
       for norm, epsilon in ((math.inf, 0.2), (2, 0.5), (1, 1.5))},
    **{f"MinimumNorm, norm {norm:g}": MinimumNorm(norm, steps=30) for norm in (math.inf, 2, 1)},
    "DeepFool": DeepFool(),
    "TargetedAscent": TargetedAscent(confidence=0.6, step=0.05, steps=200),
}  # fmt: skip


@pytest.mark.parametrize("attack", STEEP.values(), ids=STEEP)
def test_an_infinite_slope_at_one_pixel_does_not_hide_the_others(attack):
    """As of a square root at a black pixel."""

    def model(x: Tensor) -> Tensor:
        gap = x[:, 1:].mean(dim=1) - 0.45 + 0.001 * x[:, 0].sqrt()
        return torch.stack([10 * gap, -10 * gap], dim=1)

    image = torch.full((1, 16), 0.5)
    image[0, 0] = 0
    hit = attack(model, image, torch.tensor([0]))
    assert hit.success.tolist() == [True]
    assert float(hit.distance) < 1.6


def test_a_batch_of_another_size_is_refused():
    @dataclasses.dataclass(frozen=True)
    class OneOfThem(Attack):
        def _search(self, batch, *, persist):
            del persist
            return batch.images[:1]

    images, labels = shown()
    model = network()
    with pytest.raises(
        ValueError, match=r"must return images of shape \(\d+, 1, 4, 4\), as it got; it returned \(1, 1"
    ):
        OneOfThem(0.1)(model, images, labels)


@pytest.mark.parametrize(("height", "width"), [(1, 784), (784, 1), (14, 56), (28, 28)])
def test_patches_have_their_area_where_a_square_does_not_fit(height, width):
    window = SquareSearch(0.1)._window(height, width, 0)
    assert window.rows <= height
    assert window.columns <= width
    assert window.rows * window.columns == pytest.approx(0.8 * 784, rel=0.02)


def test_images_whose_pixels_lie_apart_are_searched():
    images = torch.rand(6, 8, 2, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    found = SquareSearch(0.2, queries=5).perturbed(network(), images, torch.arange(6) % 4)
    assert found.shape == images.shape


@pytest.mark.parametrize("attack", [FGSM(0.1), PGD(0.1, steps=3), MinimumNorm(2, steps=5), DeepFool(steps=3)])
def test_models_that_work_in_place_are_attacked_like_others(attack):
    images, labels = shown()
    net = network()

    def in_place(x: Tensor) -> Tensor:
        return net(x.sub_(0.5).div_(0.5))

    def apart(x: Tensor) -> Tensor:
        return net((x - 0.5) / 0.5)

    first, second = (attack(model, images, labels) for model in (in_place, apart))
    assert torch.equal(first.images, second.images)


@pytest.mark.parametrize(
    "front",
    [
        lambda x: x.clone().__ifloordiv__(0.125),
        lambda x: x.clone().div_(0.125, rounding_mode="floor"),
        lambda x: x.clone().floor_divide_(0.125),
        lambda x: torch.div(x, other=0.125, rounding_mode="floor"),
        lambda x: 8 * torch.sgn(x - 0.5),
        lambda x: 8 * torch.special.round(x),
    ],
)
def test_every_way_to_round_is_passed(front):
    images = torch.tensor([[0.6, 0.4]], requires_grad=True)
    assert has_steps(front, images.detach())
    (gradient,) = torch.autograd.grad(straight_through(front)(images).sum(), images)
    torch.testing.assert_close(gradient, torch.full_like(gradient, 8.0))
    assert torch.equal(straight_through(front)(images), front(images.detach()))


def test_a_model_that_changes_its_images_is_passed_and_leaves_them():
    images = torch.tensor([[0.6, 0.4]])

    def front(x: Tensor) -> Tensor:
        return x.mul_(8).round_().div_(8)

    assert has_steps(front, images)
    assert torch.equal(images, torch.tensor([[0.6, 0.4]]))
    leaf = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(straight_through(front)(leaf.clone()).sum(), leaf)
    torch.testing.assert_close(gradient, torch.ones_like(gradient))


@pytest.mark.parametrize(("norm", "expected"), [(1, 0.3), (2, 0.3), (math.inf, 0.3)])
def test_deep_fool_goes_to_a_boundary_that_lies_inside_the_bounds(norm, expected):
    """The nearer plane, of the second class, is not reached by any pixel in [0, 1]."""

    def model(x: Tensor) -> Tensor:
        return torch.stack([torch.ones(len(x)).to(x), x[:, 0] - 0.05, x[:, 1] + 0.2], dim=1)

    hit = DeepFool(norm)(model, torch.tensor([[0.95, 0.5]]), torch.tensor([0]))
    assert bool(hit.success)
    assert float(hit.distance) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: transferred(network(), NO_RADIUS), "`attack` must be an attack in a ball.*got MinimumNorm"),
        (lambda: as_attack(OTHER_KIND, 0.1), "`make` must be a callable .*got tuple"),
        (lambda: as_attack(lambda *_: None, 0.1)(network(), *shown()), "images as a tensor; it returned NoneType"),
        (lambda: Robustness(epsilons=WORD), "`epsilons` must be radii by norm.*got 'plain'"),
        (lambda: Robustness(source=WORD), "`source` must be a Classifier or None; got str"),
    ],
)  # fmt: skip
def test_arguments_of_another_kind_are_refused_in_words(call, said):
    with pytest.raises(TypeError, match=said):
        call()
