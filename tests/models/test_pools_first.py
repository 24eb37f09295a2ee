"""Maps that are pooled before they are rectified for as long as a network is looked at."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from clearance.audits import BoundaryDistance
from clearance.data import gaussian_images
from clearance.models import Classifier, small_cnn, wrap
from clearance.models._pools_first import pools_before_rectifiers


class Reaching(nn.Module):
    """A network of a user's own that runs its layers by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        return self.layers[3](self.layers[2](2 * self.layers[1](self.layers[0](images)) - 1))


def _order(model: nn.Module) -> list[str]:
    return [type(part).__name__ for part in model.modules() if isinstance(part, (nn.ReLU, nn.MaxPool2d))]


def _network(*layers: nn.Module) -> Classifier:
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.Conv2d(1, 6, 3), *layers, nn.Flatten()), nn.LazyLinear(3)).eval()
    model(torch.rand(2, 1, 12, 12))
    return model


def _logits_and_gradient(model: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    moving = images.clone().requires_grad_()
    logits = model(moving)
    (gradient,) = torch.autograd.grad(logits[:, 0].sum() - logits[:, 1].sum(), moving)
    return logits.detach(), gradient


@pytest.fixture
def images() -> Tensor:
    """With ties inside what is pooled together, as images have."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(7, 1, 12, 12, generator=generator).mul(3).round() / 3


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.MaxPool2d(2, stride=1, dilation=2),
    ],
)
@pytest.mark.parametrize("inplace", [False, True])
def test_logits_and_gradients_are_the_same_to_the_bit(
    pool: nn.MaxPool2d, inplace: bool, images: Tensor
) -> None:
    model = _network(nn.ReLU(inplace), pool)
    plain = _logits_and_gradient(model, images)
    with pools_before_rectifiers(model):
        assert _order(model) == ["MaxPool2d", "ReLU"]
        swapped = _logits_and_gradient(model, images)
    assert _order(model) == ["ReLU", "MaxPool2d"]
    assert all(torch.equal(*pair) for pair in zip(plain, swapped, strict=True))


def test_what_is_no_number_stays_so(images: Tensor) -> None:
    model = _network(nn.ReLU(), nn.MaxPool2d(2))
    images[0, 0, 3, 3] = torch.nan
    plain = model(images)
    with pools_before_rectifiers(model):
        torch.testing.assert_close(model(images), plain, rtol=0, atol=0, equal_nan=True)


def test_every_stage_of_a_network_is_swapped_and_is_back_after_an_error() -> None:
    model = Classifier(small_cnn(1, 28), nn.LazyLinear(4)).eval()
    model(torch.rand(2, 1, 28, 28))
    parts, order = list(model.modules()), _order(model)
    assert order[:2] == ["ReLU", "MaxPool2d"]
    with pools_before_rectifiers(model):
        assert _order(model) == order[::-1]
    with pytest.raises(RuntimeError, match="channels"), pools_before_rectifiers(model):
        model(torch.rand(2, 3, 28, 28))
    assert list(model.modules()) == parts


def _hooked(register: str) -> Callable[[], Classifier]:
    def build() -> Classifier:
        model = _network(nn.ReLU(), nn.MaxPool2d(2))
        rectifier = model.extractor.get_submodule("1")
        getattr(rectifier, register)(lambda *_: None)
        return model

    return build


def _of_ones_own() -> Classifier:
    return Classifier(Reaching(), nn.LazyLinear(3)).eval()


def _compiled() -> Classifier:
    model = _network(nn.ReLU(), nn.MaxPool2d(2))
    model.extractor._compiled_call_impl = model.extractor._call_impl  # as nn.Module.compile does
    return model


@pytest.mark.parametrize(
    "build",
    [
        _hooked("register_forward_hook"),
        _hooked("register_forward_pre_hook"),
        _hooked("register_full_backward_hook"),
        _hooked("register_full_backward_pre_hook"),
        _of_ones_own,
        _compiled,
        lambda: _network(nn.ReLU6(), nn.MaxPool2d(2)),
        lambda: _network(nn.ReLU(), nn.AvgPool2d(2)),
        lambda: _network(nn.ReLU(), nn.Identity(), nn.MaxPool2d(2)),
    ],
)
def test_what_someone_may_ask_for_and_what_would_differ_is_left_alone(
    build: Callable[[], Classifier], images: Tensor
) -> None:
    model = build()
    plain, parts = _logits_and_gradient(model, images), list(model.modules())
    with pools_before_rectifiers(model):
        assert list(model.modules()) == parts
        assert all(
            torch.equal(*pair) for pair in zip(plain, _logits_and_gradient(model, images), strict=True)
        )


def test_pools_that_give_their_places_are_left_alone() -> None:
    chain = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True))
    with pools_before_rectifiers(chain):
        assert _order(chain) == ["ReLU", "MaxPool2d"]


def test_layers_asked_for_by_name_are_measured_where_they_stand() -> None:
    """The audit swaps only while it looks from the images: a rectifier's values are those before its pool."""
    train, test = gaussian_images(per_class=6, seed=0), gaussian_images(per_class=6, seed=1)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3)
    ).eval()
    net(test.images[:1])
    model = wrap(net, example=test.images[:4], verbose=False)
    layer = "extractor.module.1"
    audit = BoundaryDistance(norms=("2",), layers=("input", layer), steps=5)
    apart = BoundaryDistance(norms=("2",), layers=(layer,), steps=5)
    hook = net[1].register_forward_hook(lambda *_: None)  # a hooked layer is never swapped
    expected = _numbers(apart, model, train, test)
    hook.remove()
    assert _numbers(audit, model, train, test)[layer] == expected[layer]


def _numbers(audit: BoundaryDistance, model: Classifier, train, test) -> dict[str, float]:
    found = audit(model, train, test).measurements
    return {
        str(m.context["layer"]): m.value
        for m in found
        if m.name == "first_order_distance" and m.context["class"] == "all"
    }
