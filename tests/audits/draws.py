"""Which images an audit draws, and how a head is trained, written down a second time, to follow its numbers by hand."""

from typing import NamedTuple

import torch

from clearance.research import generator


class Draws(NamedTuple):
    """`rows` (r, samples): as many draws of training images."""

    samples: int
    rows: torch.Tensor


def partial_sets(train, per_class, repetitions, seed):
    """For each size: draws of so many images of every class, class after class; last, all images once."""
    found = []
    for count, draws in zip(per_class, repetitions, strict=True):
        stream = generator(seed, "partial sets", count)
        rows = []
        for _ in range(draws):
            by_class = [(train.labels == k).nonzero().flatten() for k in range(train.class_count)]
            rows.append(
                torch.cat([one[torch.randperm(len(one), generator=stream)[:count]] for one in by_class])
            )
        found.append(Draws(count * train.class_count, torch.stack(rows)))
    return [*found, Draws(len(train), torch.arange(len(train))[None])]


def trained_alone(head, features, labels, order, lr):
    """The head after a step of torch's own optimiser for the rows of each batch in `order`."""
    optimizer = torch.optim.SGD(head.parameters(), lr=lr, momentum=0.9, nesterov=True)
    for rows in order:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(features[rows]), labels[rows]).backward()
        optimizer.step()
    return head


def first_half(labels, seed):
    """A mask: the first half of each class in one random order of all images."""
    order = torch.randperm(len(labels), generator=generator(seed, "audits", "halves")).tolist()
    half = torch.zeros(len(labels), dtype=torch.bool)
    for k in labels.unique().tolist():
        own = [row for row in order if int(labels[row]) == k]
        half[own[: len(own) // 2]] = True
    return half
