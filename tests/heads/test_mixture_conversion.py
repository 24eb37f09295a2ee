"""Mixtures as linear heads and back, where rounding bites and where the argument is another."""

from typing import Any

import pytest
import torch
from torch import nn

from clearance.heads import GaussianMixture, linear_from_mixture, mixture_from_linear
from heads.mixtures import mixture, samples  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml

close = torch.testing.assert_close


@torch.no_grad()
@pytest.mark.parametrize("covariance", ["scalar", "diagonal", "full"])
@pytest.mark.parametrize(("offset", "bound"), [(0.0, 2e-5), (10.0, 1e-3), (100.0, 1e-2)])
def test_an_offset_that_all_features_share_hardly_moves_the_posteriors(covariance, offset, bound):
    """In float32, against the same mixture in float64; features have deviation 0.1 around their class."""
    noise, labels = samples(1000, 64, 5)
    features = (offset + 0.03 * samples(5, 64, 5, seed=3)[0][labels] + 0.1 * noise).float()
    head = GaussianMixture(64, 5, covariance).fit_statistics(features, labels)
    found = linear_from_mixture(head)(features).double().log_softmax(dim=1)
    expected = head.double()(features.double()).log_softmax(dim=1)
    assert float((found - expected).abs().max()) < bound
    assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))


def test_a_linear_head_has_no_part_that_all_classes_share():
    """And a class that is as good as never does not push the others' biases out of float32."""
    head: Any = mixture("diagonal", priors=[0.5, 0.3, 0.2 - 1e-30, 1e-30])
    with torch.no_grad():
        head.log_priors.copy_(torch.tensor([0.0, 0.1, 0.2, -1e6]))
    features, _ = samples()
    linear = linear_from_mixture(head)
    close(linear.weight.sum(dim=0), torch.zeros(7, dtype=torch.float64), rtol=0, atol=1e-12)
    narrow = linear_from_mixture(head.float())
    close(
        narrow(features.float()).softmax(dim=1), linear(features).softmax(dim=1).float(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_priors_of_a_narrow_layer_are_wide(dtype):
    """A float32 copy of the layer is the truth: its weights and biases are the same numbers."""
    linear = nn.Linear(64, 5).to(dtype)
    with torch.no_grad():
        linear.weight.mul_(20)
    found: Any = mixture_from_linear(linear)
    assert {value.dtype for value in found.parameters()} == {torch.float32}
    features = 0.1 * samples(20, 64)[0].to(dtype).float()
    truth = linear.double()(features.double()).softmax(dim=1)
    close(found.posterior(features).double(), truth, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("convert", "given", "words"),
    [
        (
            mixture_from_linear,
            nn.Sequential(nn.Linear(2, 3)),
            r"`linear` must be a torch.nn.Linear; got Sequential\. With several",
        ),
        (mixture_from_linear, None, r"`linear` must be a torch.nn.Linear; got NoneType\."),
        (linear_from_mixture, nn.Linear(2, 3), r"`head` must be a GaussianMixture; got Linear\."),
    ],
)
def test_another_kind_of_head_is_refused(convert, given, words):
    with pytest.raises(TypeError, match=words):
        convert(given)
