"""What cannot be cut is refused with the reason."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.models import wrap
from models.wrap_modules import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    VGG,
    Around,
    cnn,
)

pytestmark = pytest.mark.usefixtures("seeded")


def test_typo_gets_the_nearest_name(images):
    with pytest.raises(
        ValueError, match=r"submodule of the VGG; got 'clasifier'\. Did you mean 'classifier'"
    ):
        wrap(VGG(), "clasifier", example=images)
    with pytest.raises(ValueError, match="outermost submodules: 'features', 'classifier'"):
        wrap(VGG(), "zzz", example=images)


class Conv(nn.Module):
    def __init__(self, pool=True):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(self.conv(x)).flatten(1)


REFUSED = {
    "softmax": (
        lambda m, f: m.fc(f).softmax(1),
        None,
        "^softmax after the head 'fc': audit logits, not prob",
    ),
    "log-softmax": (lambda m, f: F.log_softmax(m.fc(f), 1), None, "^log-softmax after the head 'fc'"),
    "temperature": (lambda m, f: m.fc(f) / 3, None, "differ by up to .* something follows the head"),
    "temperature in place": (lambda m, f: m.fc(f).div_(3), None, "something follows the head"),
    "pooling": (
        lambda m, f: F.avg_pool1d(m.fc(f), 5),
        None,
        r"head 'fc' returns \(6, 5\) but the module returns \(6, 1\)",
    ),
    "not the last linear": (lambda m, f: F.relu(m.fc(f)), None, "something follows the head"),
    "an earlier linear by name": (lambda m, f: m.fc(f), "body.1", "something follows the head"),
    "head twice": (lambda m, f: m.fc(m.fc(f)), None, "head 'fc' runs 2 times"),
    "dict": (lambda m, f: {"loss": None}, None, r"got dict with keys \['loss'\]"),
    "tuple": (lambda m, f: (m.fc(f), f), None, r"one tensor of logits; got 2 \(0 \(6, 5\), 1 \(6, 5\)\)"),
    "text": (lambda m, f: "logits", None, "or an object with `.logits`; got str"),
    "nan": (lambda m, f: m.fc(f) * float("nan"), None, "finite logits"),
    "keyword": (lambda m, f: m.fc(input=f), None, "'fc' must receive one tensor as its only argument"),
    "never runs": (lambda m, f: m.fc(f), "unused", "head 'unused' is never called"),
    "weights used directly": (lambda m, f: F.linear(f, m.fc.weight), "fc", "head 'fc' is never called"),
    "weights used besides": (
        lambda m, f: m.fc(f * m.fc.weight.mean()),
        None,
        "not up to it, with AttributeError.* has no attribute 'weight'",
    ),
    "noise": (lambda m, f: m.fc(F.dropout(f, 0.5, training=True)), None, "two runs on the example differ"),
    "tokens": (
        lambda m, f: m.fc(f[:, None].expand(-1, 2, -1)).mean(1),
        None,
        r"head 'fc' must receive features of shape \(B, D\); it receives \(6, 2, 5\) for 6 images",
    ),
    "crops in the batch": (
        lambda m, f: m.fc(f.repeat(2, 1))[:6],
        None,
        r"receives \(12, 5\) for 6 images",
    ),
    "failing": (
        lambda m, f: m.fc(f @ f),
        None,
        r"must take the example .*shape \(6, 3, 8, 8\).*RuntimeError",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason(case, images):
    way, head, reason = REFUSED[case]
    module = Around(way)
    module.fc.training = False
    with pytest.raises(ValueError, match=reason):
        wrap(module, head, example=images)
    assert module.training
    assert not module.fc.training
    assert not any(part._forward_pre_hooks for part in module.modules())


def test_head_reached_past_its_attribute_is_refused(images):
    module = Around(lambda m, f: m.hidden[0](f))
    module.hidden = [module.fc]  # a plain list, which torch does not register
    with pytest.raises(ValueError, match=r"ended without calling the head.* reach the head by its attribute"):
        wrap(module, example=images)


def test_head_with_an_argument_of_its_own_is_refused(images):
    class Scaled(nn.Linear):
        def forward(self, x, scale=1.0):
            return scale * super().forward(x)

    module = Around(lambda m, f: m.fc(f, scale=2.0))
    module.fc = Scaled(5, 5)
    with pytest.raises(ValueError, match="'fc' must receive one tensor as its only argument"):
        wrap(module, example=images)


def test_what_arrives_counts_not_what_a_hook_makes_of_it(images):
    module = Around(lambda m, f: m.fc(f[:, :, None]))
    module.fc.register_forward_pre_hook(lambda _module, args: (args[0].flatten(1),))
    with pytest.raises(ValueError, match=r"it receives \(6, 5, 1\)"):
        wrap(module, example=images)


def test_head_returning_a_tuple_is_refused(images):
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    module = Around(lambda m, f: m.fc(f)[0])
    module.fc = Pair(5, 5)
    with pytest.raises(ValueError, match="head 'fc' must return one tensor; got tuple"):
        wrap(module, example=images)


def test_convolution_over_more_than_a_point_is_no_head(images):
    with pytest.raises(
        ValueError, match=r"head 'conv' must receive .* it receives \(6, 3, 8, 8\), and something else"
    ):
        wrap(Conv(), "conv", example=images)
    with pytest.raises(
        ValueError, match=r"no nn\.Linear runs in the Conv, nor a 1x1 convolution; name the submodule"
    ):
        wrap(Conv(), example=images)


def test_tied_weights_are_refused(images):
    module = Around(lambda m, f: m.fc(f))
    module.body.append(nn.Linear(5, 5))
    module.body[3].weight = module.fc.weight
    with pytest.raises(ValueError, match=r"share 'module\.body\.3\.weight'"):
        wrap(module, example=images)


class FunctionalInPlace(nn.Linear):
    def forward(self, x):
        return super().forward(x.mul_(2))


def test_head_that_changes_its_features_is_refused(images):
    with pytest.raises(ValueError, match=r"changes its features in place \(Dropout with inplace=True\)"):
        wrap(VGG(inplace=True), "classifier", example=images)
    wrap(VGG(inplace=True), example=images, verbose=False)  # the last layer alone is a good head
    with pytest.raises(ValueError, match="head '1' changes its features in place,"):
        wrap(nn.Sequential(nn.Flatten(), FunctionalInPlace(192, 5)), example=images)


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (
            torch.randn(4, 3, 8, 8) * 9,
            r"images in \[0, 1\]; got values from -.* give wrap `mean` and `std`",
        ),
        (torch.full((4, 3, 8, 8), float("nan")), "got values from nan"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), r"got torch\.uint8\. Divide by 255"),
        (torch.zeros(3, 8, 8), r"shape \(B, C, H, W\); got \(3, 8, 8\)"),
        (torch.zeros(0, 3, 8, 8), r"got \(0, 3, 8, 8\)"),
        ([[0.0]], "got list"),
    ],
)
def test_example_is_a_batch_of_images(example, reason):
    with pytest.raises(ValueError, match=reason):
        wrap(cnn(), example=example)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: F.relu, "must be a torch.nn.Module; got function"),
        (lambda: nn.DataParallel(cnn()), r"DataParallel; wrap its `\.module`"),
        (
            lambda: torch.compile(cnn(), backend="eager"),
            r"compiled and cannot be cut; wrap its `\._orig_mod`",
        ),
    ],
)
def test_modules_with_a_forward_of_their_own_are_refused(make, reason, images):
    with pytest.raises(ValueError, match=reason):
        wrap(make(), example=images)


@pytest.mark.parametrize(("mean", "std"), [(127.5, 1.0), (0.5, 127.5), ((0.5, 104.0, 0.5), 1.0)])
def test_means_and_deviations_of_grey_levels_are_refused(mean, std, images):
    with pytest.raises(
        ValueError, match=r"must be that of images in \[0, 1\].*Divide `mean` and `std` by 255"
    ):
        wrap(cnn(), example=images, mean=mean, std=std)
