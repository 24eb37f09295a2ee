"""Train K small heads at once on frozen features: FOCA's weak heads and the audits' fresh heads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction, check_non_negative, check_positive
from clearance.heads._gradients import DenseGradient, FunctionalGradient, GramGradient, HeadGradient
from clearance.heads._relu_layers import linear_layers
from clearance.heads.stack import HeadStack

SampleLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class HeadTraining:
    """How a head is trained: plain SGD, as torch.optim.SGD does it.

    Args:
        steps: Number of updates.
        lr: Step size, above 0; constant.
        momentum: In [0, 1); 0.9 is customary.
        nesterov: Whether to look ahead.
        weight_decay: w adds w times the parameter to its gradient (biases too), at least 0: the penalty
            (w / 2) ||theta||^2 beside a mean loss.
        batch_size: Samples a step; None takes all of them every step.
    """

    steps: int = 32
    lr: float = 0.03
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps, minimum=0)
        check_positive("lr", self.lr)
        check_fraction("momentum", self.momentum, open_above=True)
        check_non_negative("weight_decay", self.weight_decay)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)


@dataclass(frozen=True)
class TrainedHeads:
    """K trained heads, and which of them broke down.

    Args:
        stack: The heads.
        diverged: Which of them hold numbers that are not finite, (K,).
    """

    stack: HeadStack
    diverged: Tensor

    def intact(self) -> HeadStack:
        """The heads that did not diverge; all of them where nothing went wrong."""
        return self.stack.select(~self.diverged) if bool(self.diverged.any()) else self.stack


@torch.no_grad()
def train_heads(
    stack: HeadStack,
    features: Tensor,
    labels: Tensor,
    training: HeadTraining,
    *,
    rows: Tensor | None = None,
    mask: Tensor | None = None,
    loss: SampleLoss | None = None,
    generator: torch.Generator | None = None,
) -> TrainedHeads:
    r"""Train every head of a stack on frozen features, all at once.

    theta_k <- SGD steps on  mean_i loss(head(features_ki; theta_k), label_ki) + (w / 2) ||theta_k||^2

    Each head moves exactly as it would alone in a loop of modules with torch.optim.SGD. Where a head is
    Linear (ReLU Linear)* and its full batch is much smaller than the feature width, the first layer is
    carried as a combination of the samples (its updates lie in their span), which is exact and needs
    neither gradient nor momentum of the size of its weight. Other heads go through torch.func.

    Args:
        stack: Where the heads start; it is not changed.
        features: (n, D), read by all heads, or (K, n, D). Detached; at least float32 inside.
        labels: Class indices, (n,) or (K, n).
        training: Steps and their size.
        rows: Index (K, n) into a pool `features` (N, D) with `labels` (N,): head k trains on
            ``features[rows[k]]``. Heads are then taken in chunks that bound memory.
        mask: Boolean (K, n): which samples count, for ragged sets. Every head needs one at least. What fills
            the rest does not matter, as long as it is finite and its labels are classes.
        loss: (logits (m, C), labels (m,)) to a loss for each sample (m,); None is softmax cross-entropy,
            whose gradient is written out.
        generator: Draws the order of minibatches; needed where `training.batch_size` is below n. All
            heads read the same rows in a step; a head's mean is over its unmasked ones.

    Raises:
        ValueError: If shapes do not fit, or minibatches lack a generator.

    >>> features, labels = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    >>> stack = HeadStack.initialised(torch.nn.Linear(3, 3), 4, torch.Generator().manual_seed(0))
    >>> trained = train_heads(stack, features, labels, HeadTraining(steps=20, lr=1.0))
    >>> bool((trained.stack.predictions(features) == labels).all())
    True
    """
    features, labels = features.detach(), labels.detach()
    _check_shapes(stack, features, labels, rows, mask)
    count = rows.shape[1] if rows is not None else features.shape[-2]
    batches = list(_batches(count, training, generator))
    chunks = []
    for part in torch.arange(len(stack)).split(_heads_at_once(rows, features)):
        chosen_features, chosen_labels = _data_of(part, features, labels, rows)
        chosen_mask = None if mask is None else mask[part]
        heads = stack if len(part) == len(stack) else stack.select(part)
        gradient = _gradient_for(heads, chosen_features, chosen_labels, chosen_mask, loss, training)
        chunks.append(_descend(heads, gradient, batches, training))
    return _join(chunks)


def _descend(
    heads: HeadStack, gradient: HeadGradient, batches: list[Tensor | None], training: HeadTraining
) -> TrainedHeads:
    for batch in batches:
        gradient.compute(batch)
        gradient.sgd_step(training.lr, training.momentum, training.weight_decay, nesterov=training.nesterov)
    trained = gradient.trained()
    finite = [value.reshape(len(heads), -1).isfinite().all(dim=1) for value in trained.values()]
    return TrainedHeads(heads.holding(trained), ~torch.stack(finite).all(dim=0))


def _gradient_for(
    heads: HeadStack,
    features: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    loss: SampleLoss | None,
    training: HeadTraining,
) -> HeadGradient:
    kept = features if features.dtype == torch.float64 else features.float()
    layers = linear_layers(heads.architecture)
    if layers is None:
        return FunctionalGradient(heads, kept, labels, mask, loss)
    full_batch = training.batch_size is None or training.batch_size >= kept.shape[-2]
    if full_batch and 2 * kept.shape[-2] <= kept.shape[-1]:
        return GramGradient(heads, layers, kept, labels, mask, loss)
    return DenseGradient(heads, layers, kept, labels, mask, loss)


def _batches(
    count: int, training: HeadTraining, generator: torch.Generator | None
) -> Iterator[Tensor | None]:
    """The rows of each step; None for all of them."""
    size = training.batch_size
    if size is None or size >= count:
        yield from [None] * training.steps
        return
    if generator is None:
        raise ValueError(
            f"`generator` is needed, because batch_size {size} is below the {count} samples and their order "
            "must be drawn; pass a torch.Generator."
        )
    given = 0
    while given < training.steps:
        for batch in torch.randperm(count, generator=generator).split(size):
            yield batch
            given += 1
            if given == training.steps:
                return


def _heads_at_once(rows: Tensor | None, features: Tensor, elements: int = 2**26) -> int:
    if rows is None:
        return 2**31
    return max(1, elements // (rows.shape[1] * features.shape[-1]))


def _data_of(part: Tensor, features: Tensor, labels: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    if rows is not None:
        return features[rows[part]], labels[rows[part]]
    return (
        features[part] if features.ndim == 3 else features,
        labels[part] if labels.ndim == 2 else labels.expand(len(part), -1),
    )


def _join(chunks: list[TrainedHeads]) -> TrainedHeads:
    if len(chunks) == 1:
        return chunks[0]
    first = chunks[0].stack
    names = first.parameters
    joined = {name: torch.cat([chunk.stack.parameters[name] for chunk in chunks]) for name in names}
    stack = first.holding(joined)
    return replace(chunks[0], stack=stack, diverged=torch.cat([chunk.diverged for chunk in chunks]))


def _check_shapes(
    stack: HeadStack, features: Tensor, labels: Tensor, rows: Tensor | None, mask: Tensor | None
) -> None:
    K = len(stack)
    if rows is not None:
        if features.ndim != 2 or labels.shape != features.shape[:1] or rows.ndim != 2 or len(rows) != K:
            raise ValueError(
                f"with `rows` ({K}, n), `features` must be (N, D) and `labels` (N,); got rows "
                f"{tuple(rows.shape)}, features {tuple(features.shape)}, labels {tuple(labels.shape)}."
            )
        count = rows.shape[1]
    else:
        fits = features.ndim == 2 or (features.ndim == 3 and len(features) == K)
        count = features.shape[-2] if features.ndim >= 2 else 0
        if not fits or labels.shape not in ((count,), (K, count)):
            raise ValueError(
                f"`features` must be (n, D) or ({K}, n, D) and `labels` (n,) or ({K}, n); got "
                f"{tuple(features.shape)} and {tuple(labels.shape)}."
            )
    if mask is not None and (mask.shape != (K, count) or not bool(mask.any(dim=1).all())):
        raise ValueError(
            f"`mask` must be boolean of shape ({K}, {count}) with at least one sample for every head; got "
            f"shape {tuple(mask.shape)}."
        )
