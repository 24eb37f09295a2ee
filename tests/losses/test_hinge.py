"""The hinge's two forms against plain Python, and where they meet."""

import pytest
import torch

from clearance import Outputs
from clearance.losses import HingeLoss
from clearance.losses.hinge import hinge


def random_logits(*shape, seed=0):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("form", ["max", "sum"])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_equals_the_formula_sample_by_sample(form, leading):
    logits, labels = random_logits(*leading, 5, 4), torch.tensor([0, 3, 1, 2, 3])
    found = hinge(logits, labels, margin=1.5, form=form)
    assert found.shape == (*leading, 5)
    for head, losses in zip(logits.reshape(-1, 5, 4), found.reshape(-1, 5), strict=True):
        for z, label, loss in zip(head.tolist(), labels.tolist(), losses.tolist(), strict=True):
            short = [max(0.0, 1.5 + value - z[label]) for i, value in enumerate(z) if i != label]
            assert loss == pytest.approx(max(short) if form == "max" else sum(short), rel=1e-12)


def test_for_two_classes_both_forms_are_the_binary_hinge():
    logits, labels = random_logits(6, 2), torch.tensor([0, 1, 1, 0, 1, 0])
    m = (logits[:, 0] - logits[:, 1]) * (1 - 2 * labels)
    expected = (1 - m).clamp(min=0)
    for form in ("max", "sum"):
        torch.testing.assert_close(hinge(logits, labels, form=form), expected)


def test_the_sum_is_between_one_and_all_but_one_times_the_maximum():
    logits, labels = random_logits(50, 6), torch.arange(50) % 6
    largest, total = (hinge(logits, labels, form=form) for form in ("max", "sum"))
    assert (largest <= total).all()
    assert (total <= 5 * largest).all()
    assert (largest < total).any()


def test_gradient_of_the_maximum_moves_two_logits():
    logits = torch.tensor([[0.3, 0.5, -1.0], [9.0, 0.0, 0.0]], requires_grad=True)
    HingeLoss()(Outputs(logits, logits, torch.nn.Identity()), torch.tensor([0, 0])).total.backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("form", ["max", "sum"])
def test_heads_are_trained_by_the_same_loss(form):
    """FOCA's weak heads take `sample_loss`."""
    loss = HingeLoss(0.7, form)
    logits, labels = random_logits(5, 4), torch.tensor([0, 3, 1, 2, 3])
    found = loss(Outputs(logits, logits, torch.nn.Identity()), labels).total
    assert loss.sample_loss(logits, labels).mean().item() == found.item()
    assert found.item() == pytest.approx(hinge(logits, labels, 0.7, form).mean().item(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_subtracted_in_float32(dtype):
    found = hinge(torch.tensor([[-60000.0, 60000.0]]).to(dtype), torch.tensor([0]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(120_001, rel=0.01)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least two classes"):
        hinge(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"margin": 0.0}, "`margin` must be a finite number above 0"),
        ({"form": "mx"}, "`form` must be one of 'max', 'sum'; got 'mx'. Did you mean 'max'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HingeLoss(**settings)
