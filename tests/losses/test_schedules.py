"""Margins that grow and softmax that fades."""

import math

import pytest

from clearance.losses import GaussianMixtureLoss, InverseDecay, LargeMarginSoftmaxLoss, StepUp


def test_alpha_rises_as_released_for_mnist():
    alpha = StepUp(0.001, 10, 1500, 1)
    found = [alpha(step) for step in (0, 1499, 1500, 3000, 4499, 4500, 10**9)]
    assert found == pytest.approx([1e-3, 1e-3, 1e-2, 1e-1, 1e-1, 1, 1])


def test_a_factor_of_one_stays():
    assert StepUp(0.1, 1.0, 1, 0.3)(10**12) == 0.1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((1000, 2.5e-5, 35, 0), (1000, 181, 16.2, 0.41, 6.9e-4, 3.1e-6)),
        ((1000, 2e-5, 45, 0), (1000, 171, 13.7, 0.27, 2.7e-4, 6.5e-7)),
    ],
)
def test_softmax_fades_as_released(settings, expected):
    found = [InverseDecay(*settings)(step) for step in (0, 2000, 5000, 10_000, 20_000, 30_000)]
    assert found == pytest.approx(expected, rel=0.02)
    assert InverseDecay(settings[0], settings[1], settings[2], 5.0)(10**6) == 5.0


def test_settings_may_be_named_as_in_a_recipe():
    assert GaussianMixtureLoss({"start": 0.1, "factor": 2, "every": 3, "most": 0.3}).alpha == StepUp(
        0.1, 2, 3, 0.3
    )
    fading = LargeMarginSoftmaxLoss(2, {"start": 5.0, "rate": 0.1, "power": 2.0}).softmax_weight
    assert fading == InverseDecay(5.0, 0.1, 2.0)
    with pytest.raises(ValueError, match=r"`alpha` must be one of .*'factor'.*got 'facter'"):
        GaussianMixtureLoss({"start": 0.1, "facter": 2})


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (StepUp, (0.0, 2, 1, 1), "`start` must be a finite number above 0"),
        (StepUp, (0.1, 0.5, 1, 1), "`factor` must be at least 1; got 0.5"),
        (StepUp, (0.1, 2, 0, 1), "`every` must be a whole number"),
        (StepUp, (0.1, 2, 1, 0.05), "`most` must be at least 0.1; got 0.05"),
        (StepUp, (0.1, 2, 1, math.inf), "`most` must be a finite number above 0; got inf"),
        (StepUp, (0.1, math.inf, 1, 1), "`factor` must be a finite number above 0; got inf"),
        (StepUp, (0.1, math.nan, 1, 1), "`factor` must be a finite number above 0; got nan"),
        (InverseDecay, (-1, 0, 0, 0), "`start` must be"),
        (InverseDecay, (1, -1, 0, 0), "`rate` must be"),
        (InverseDecay, (1, 0, -1, 0), "`power` must be"),
        (InverseDecay, (1, 0, 0, -1), "`least` must be"),
    ],
)
def test_settings_out_of_range_are_refused(kind, settings, words):
    with pytest.raises(ValueError, match=words):
        kind(*settings)


@pytest.mark.parametrize(
    ("build", "given", "words"),
    [
        (
            GaussianMixtureLoss,
            InverseDecay(1, 0, 0),
            r"`alpha` must be a number or a StepUp; got InverseDecay\(start=1",
        ),
        (
            lambda given: LargeMarginSoftmaxLoss(2, given),
            StepUp(0.1, 2, 1, 1),
            r"`softmax_weight` must be a number or an InverseDecay; got StepUp\(start=0.1",
        ),
        (GaussianMixtureLoss, [0.1], r"`alpha` must be a number or a StepUp; got \[0.1\]"),
        (GaussianMixtureLoss, "0.1", r"`alpha` must be a number or a StepUp; got '0.1'"),
    ],
)
def test_another_kind_of_schedule_is_refused(build, given, words):
    with pytest.raises(TypeError, match=words):
        build(given)


def test_settings_that_are_missing_are_named():
    with pytest.raises(
        ValueError, match="`alpha` must name start, factor, every, most; 'every' and 'most' are missing"
    ):
        GaussianMixtureLoss({"start": 0.1, "factor": 2})
    with pytest.raises(
        ValueError, match=r"`softmax_weight` must name start, rate, power; 'power' is missing\."
    ):
        LargeMarginSoftmaxLoss(2, {"start": 1.0, "rate": 0.1})
    with pytest.raises(ValueError, match="'start', 'factor', 'every' and 'most' are missing"):
        GaussianMixtureLoss({})
