"""Ragged sets by a mask: a head trains on its own samples, whatever fills the rest."""

import pytest
import torch
from torch import nn

from clearance.heads import HeadTraining, train_heads

FULL = HeadTraining(steps=5, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
SHORT = HeadTraining(steps=3, lr=1e-3)


def ragged(features, labels, lengths, filler):
    """Only the first samples of each head count; the others hold `filler`."""
    mask = torch.arange(features.shape[1]) < torch.tensor(lengths)[:, None]
    return torch.where(mask[..., None], features, filler), torch.where(mask, labels, 0), mask


@pytest.mark.parametrize("D", [9, 20], ids=["dense", "gram"])
@pytest.mark.parametrize("filler", [0.0, 1e3])
def test_padding_does_not_matter(any_head, D, filler, fresh, cloud, loop_of_modules, assert_same_heads):
    """Each head as if it were alone with exactly its own samples, not a masked mean of all."""
    lengths = (8, 1, 5)
    features, labels = cloud(3, 8, D, C=D)
    stack = fresh(any_head(D, D), std=0.2)
    padded, padded_labels, mask = ragged(features, labels, lengths, filler)
    found = train_heads(stack, padded, padded_labels, FULL, mask=mask).stack
    for k, length in enumerate(lengths):
        alone = loop_of_modules(
            stack.select(torch.tensor([k])), features[k : k + 1, :length], labels[k : k + 1, :length], FULL
        )
        assert_same_heads(found.select(torch.tensor([k])).parameters, alone)


@pytest.mark.parametrize("own", [True, False], ids=["own features", "shared features"])
def test_minibatches_average_over_the_samples_that_count(
    any_head, own, fresh, cloud, loop_of_modules, assert_same_heads
):
    """Head 1 counts one sample: most of its steps have none, and then only momentum and decay move it."""
    features, labels = cloud(3 if own else None, 8, 9, C=9)
    mask = torch.rand(3, 8, generator=torch.Generator().manual_seed(2)) < 0.6
    mask[1] = torch.arange(8) == 4
    mask[2, 0] = True
    stack = fresh(any_head(9, 9), std=0.2)
    training = HeadTraining(steps=10, lr=0.1, momentum=0.9, weight_decay=0.1, batch_size=3)
    draws = [torch.Generator().manual_seed(3) for _ in range(2)]
    found = train_heads(stack, features, labels, training, mask=mask, generator=draws[0])
    expected = loop_of_modules(stack, features, labels, training, mask=mask, generator=draws[1])
    assert_same_heads(found.stack.parameters, expected)


def test_a_mask_of_all_is_no_mask(linear_relu, fresh, cloud, assert_same_heads):
    for D in (6, 20):
        features, labels = cloud(3, 8, D)
        stack = fresh(linear_relu(D, 3))
        masked = train_heads(stack, features, labels, FULL, mask=torch.ones(3, 8, dtype=torch.bool))
        assert_same_heads(
            masked.stack.parameters, train_heads(stack, features, labels, FULL).stack.parameters, 0.0
        )


@pytest.mark.parametrize("D", [9, 20], ids=["dense", "gram"])
def test_a_loss_that_is_no_number_on_padding_does_not_spread(any_head, D, fresh, cloud):
    """Logits of padding may reach any value: their loss and its gradient are left out, not taken times 0."""

    def barrier(logits, labels):
        true = logits.gather(-1, labels[:, None])[:, 0]
        return -(2500 - true.square()).sqrt()  # beyond 50 neither it nor its gradient is a number

    assert barrier(torch.tensor([[60.0]]), torch.tensor([0])).isnan().all()
    features, labels = cloud(3, 8, D, C=D)
    features, labels, mask = ragged(features, labels, (8, 2, 5), 1e3)
    found = train_heads(fresh(any_head(D, D), std=0.2), features, labels, SHORT, mask=mask, loss=barrier)
    assert not found.diverged.any()


def test_a_head_without_any_sample_is_refused(fresh, cloud):
    mask = torch.tensor([[True] * 8, [False] * 8, [True] * 8])
    features, labels = cloud(3, 8, 6)
    with pytest.raises(ValueError, match="at least one sample for every head"):
        train_heads(fresh(nn.Linear(6, 3)), features, labels, FULL, mask=mask)
