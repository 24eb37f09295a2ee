"""What logits of a diagonal for every class remember of the pass that made them, and when they must not."""

import gc

import pytest
import torch

from clearance.heads import _remembered
from clearance.heads._remembered import remembered
from clearance.objectives import GaussianMixtureLoss
from clearance.tensors import Outputs
from heads.mixtures import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    COVARIANCES,
    mixture,
    outputs_of,
    samples,
    terms,
)


def made_of(logits, head):
    return remembered(logits, (head.means, head.raw_log_variance))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_loss_gives_the_gradients_of_one_that_does_not_know_whose_logits_it_has(covariance):
    """Logits that were copied on the way are nobody's, and everything is computed again."""
    head, (features, labels) = mixture(covariance), samples()
    gradients = []
    for copied in (False, True):
        head.zero_grad()
        x = features.clone().requires_grad_()
        logits = head(x)
        outputs = Outputs(x, logits.clone() if copied else logits, head)
        assert (made_of(outputs.logits, head) is None) == (copied or covariance == "full")
        GaussianMixtureLoss(0.3)(outputs, labels).total.backward()
        gradients.append([x.grad, *(one.grad for one in head.parameters() if one.requires_grad)])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_what_logits_were_made_of_is_kept_no_longer_than_they_are():
    head, (features, _) = mixture(), samples()
    gc.collect()
    before = len(_remembered._OF_LOGITS)
    logits = head(features)
    assert len(_remembered._OF_LOGITS) == before + 1
    del logits
    gc.collect()
    assert len(_remembered._OF_LOGITS) == before
    with torch.no_grad():
        logits = head(features)
    assert made_of(logits, head) is None


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradients_are_dense_whatever_part_of_the_loss_is_asked_for(covariance):
    """Optimizers with momentum take no sparse ones."""
    head, (features, labels) = mixture(covariance), samples()
    terms(head, features, labels)["likelihood"].backward()
    found = [one.grad for one in head.parameters() if one.grad is not None]
    assert len(found) == (1 if covariance == "identity" else 2)
    assert not any(one.is_sparse for one in found)


def test_after_a_step_the_loss_is_that_of_the_new_parameters_and_has_no_gradient():
    """The logits' own part is of the old ones, whose gradients would be wrong."""
    head, (features, labels) = mixture(), samples()
    outputs = outputs_of(head, features)
    with torch.no_grad():
        head.raw_log_variance.add_(1.0)
    assert made_of(outputs.logits, head) is None
    found = GaussianMixtureLoss()(outputs, labels)
    anew = GaussianMixtureLoss()(Outputs(features, outputs.logits.detach(), head), labels)
    torch.testing.assert_close(found.total, anew.total)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.total.backward()


def test_parameters_that_thaw_after_the_logits_get_their_gradients():
    """As they did where the loss computed everything itself."""
    head, (features, labels) = mixture(), samples()
    features.requires_grad_()
    head.requires_grad_(False)
    logits = head(features)
    head.requires_grad_(True)
    GaussianMixtureLoss(0.3)(Outputs(features, logits, head), labels).total.backward()
    for parameter in (head.means, head.raw_log_variance):
        assert parameter.grad is not None
        assert bool(parameter.grad.any())


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_logits_of_another_dtype_than_the_features(covariance):
    head, (features, labels) = mixture(covariance, dtype=torch.float32), samples()
    narrow = features.float()
    for own, of_logits in ((narrow, features), (features, narrow)):
        found = GaussianMixtureLoss(0.3)(Outputs(own, head(of_logits), head), labels)
        anew = GaussianMixtureLoss(0.3)(Outputs(own, head(of_logits).clone(), head), labels)
        torch.testing.assert_close(found.total, anew.total, rtol=1e-5, atol=1e-5, check_dtype=False)
        found.total.backward()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_features_that_were_made_in_inference_mode(covariance):
    head, (features, labels) = mixture(covariance), samples()
    with torch.inference_mode():
        made = features + 0
    GaussianMixtureLoss(0.3)(outputs_of(head, made), labels).total.backward()
    found = head.means.grad.clone()
    head.zero_grad()
    GaussianMixtureLoss(0.3)(outputs_of(head, features), labels).total.backward()
    torch.testing.assert_close(found, head.means.grad)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_own_terms_alone_ask_nothing_of_features_that_made_the_logits(covariance):
    head, (features, labels) = mixture(covariance), samples()
    features.requires_grad_()
    logits = head(features)
    head.own_terms(features.detach(), labels, logits)[0].sum().backward()
    assert features.grad is None
    assert head.means.grad is not None


def replaced(head):
    head.means = torch.nn.Parameter(head.means.detach() + 1)


def moved(head):
    head.means.data = head.means.data + 1


def stepped(head):
    with torch.no_grad():
        head.means.add_(1)


@pytest.mark.parametrize("change", [replaced, moved, stepped])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("covariance", ["class_diagonal", "identity"])
def test_whatever_way_parameters_change_logits_are_no_longer_theirs(change, dtype, covariance):
    """Also where features of another dtype had made the pass take a copy of them."""
    head, (features, labels) = mixture(covariance, dtype=dtype), samples()
    logits = head(features)
    assert made_of(logits, head) is not None
    change(head)
    assert made_of(logits, head) is None
    torch.testing.assert_close(
        head.own_terms(features, labels, logits), head.own_terms(features, labels), rtol=0, atol=0
    )


def test_logits_of_another_head_are_not_taken_for_its_own():
    one, other, (features, labels) = mixture(seed=0), mixture(seed=1), samples()
    logits = other(features)
    found = one.own_terms(features, labels, logits)
    torch.testing.assert_close(found, one.own_terms(features, labels), rtol=0, atol=0)


def test_what_does_not_depend_on_the_features_has_no_gradient_there():
    head, (features, _) = mixture(), samples()
    head.requires_grad_(False)
    features.requires_grad_()
    excess = head.excess_log_variance(head(features)).sum()
    for again in (False, True):
        (found,) = torch.autograd.grad(
            excess, features, retain_graph=True, create_graph=again, allow_unused=True
        )
        assert found is None or not bool(found.any())
