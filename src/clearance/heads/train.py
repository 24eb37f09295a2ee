"""Train K small heads at once on frozen features: FOCA's weak heads and the audits' retrained heads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from clearance._checks import check_count, check_fraction, check_non_negative, check_positive
from clearance._precision import at_least_float32
from clearance.heads.gaussian_mixture import GaussianMixture
from clearance.heads.stack import (
    HeadStack,
    WeightAndBias,
    apply_linear,
    first_linear_weight,
    linear_layers,
    weights_and_biases,
)

SampleLoss = Callable[[Tensor, Tensor], Tensor]
LayerNames = list[tuple[str, str | None]]


@dataclass(frozen=True)
class HeadTraining:
    """How a head is trained: SGD, as in torch.optim.SGD.

    Args:
        steps: Number of updates, at least 0.
        lr: Step size, above 0; constant.
        momentum: In [0, 1); 0.9 is usual.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: w adds w times the parameter to its gradient (biases too), at least 0: the penalty
            (w / 2) ||theta||^2 with a mean loss.
        batch_size: Samples per step; None uses all samples in every step.

    Raises:
        ValueError: If a number is out of range.

    >>> HeadTraining(steps=200, lr=0.1).momentum
    0.9
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
    """K trained heads, and which of them diverged.

    Args:
        stack: The heads.
        diverged: Which of them hold numbers that are not finite, (K,).
    """

    stack: HeadStack
    diverged: Tensor

    def intact(self) -> HeadStack:
        """The heads that did not diverge."""
        return self.stack.select(~self.diverged) if bool(self.diverged.any()) else self.stack


@torch.no_grad()
def train_heads(
    stack: HeadStack,
    features: Tensor,
    labels: Tensor,
    training: HeadTraining,
    *,
    rows: Tensor | None = None,
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
        loss: (logits (m, C), labels (m,)) to a loss for each sample (m,); None is softmax cross-entropy,
            whose gradient is written out.
        generator: Draws the order of minibatches; needed where `training.batch_size` is below n. All
            heads read the same rows in a step.

    Raises:
        ValueError: If shapes do not fit, or minibatches lack a generator.

    >>> features, labels = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    >>> stack = HeadStack.initialised(torch.nn.Linear(3, 3), 4, torch.Generator().manual_seed(0))
    >>> trained = train_heads(stack, features, labels, HeadTraining(steps=20, lr=1.0))
    >>> bool((trained.stack.predictions(features) == labels).all())
    True
    """
    features, labels = features.detach(), labels.detach()
    _check_shapes(stack, features, labels, rows)
    count = rows.shape[1] if rows is not None else features.shape[-2]
    batches = list(_batches(count, training, generator))
    chunks = []
    with torch.autocast(features.device.type, enabled=False):
        for part in torch.arange(len(stack)).split(_heads_at_once(rows, features)):
            chosen_features, chosen_labels = _data_of(part, features, labels, rows)
            heads = stack if len(part) == len(stack) else stack.select(part)
            gradient = _gradient_for(heads, chosen_features, chosen_labels, loss, training)
            chunks.append(_descend(heads, gradient, batches, training))
    return _join(chunks)


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


_ELEMENTS = 2**26  # of features that are gathered at once


def _heads_at_once(rows: Tensor | None, features: Tensor) -> int:
    if rows is None:
        return 2**31
    return max(1, _ELEMENTS // (rows.shape[1] * features.shape[-1]))


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


def _check_shapes(stack: HeadStack, features: Tensor, labels: Tensor, rows: Tensor | None) -> None:
    K = len(stack)
    first = first_linear_weight(stack.architecture)
    weight = None if first is None else stack.parameters[first]
    # of a convolution the last axis is no input
    if weight is not None and weight.ndim == 3 and weight.shape[-1] != features.shape[-1]:
        raise ValueError(
            f"`features` must have {weight.shape[-1]} columns, as the heads have inputs; got "
            f"{features.shape[-1]}."
        )
    if labels.dtype != torch.int64:
        raise ValueError(f"`labels` must be whole numbers of type int64; got {labels.dtype}.")
    if labels.device.type == "cpu" and labels.numel() and (least := int(labels.min())) < 0:
        raise ValueError(f"`labels` must be at least 0; got {least}. Leave out samples without a class.")
    if rows is not None:
        fits = features.ndim == 2 and labels.shape == features.shape[:1]
        if not fits or rows.ndim != 2 or len(rows) != K or rows.shape[1] == 0:
            raise ValueError(
                f"with `rows` ({K}, n), n at least 1, `features` must be (N, D) and `labels` (N,); got rows "
                f"{tuple(rows.shape)}, features {tuple(features.shape)}, labels {tuple(labels.shape)}."
            )
        return
    fits = features.ndim == 2 or (features.ndim == 3 and len(features) == K)
    count = features.shape[-2] if features.ndim >= 2 else 0
    if not fits or count == 0 or labels.shape not in ((count,), (K, count)):
        raise ValueError(
            f"`features` must be (n, D) or ({K}, n, D), n at least 1, and `labels` (n,) or ({K}, n); got "
            f"{tuple(features.shape)} and {tuple(labels.shape)}."
        )


class _HeadGradient(ABC):
    """The gradient of the mean loss of each of K heads, on data that stays in place."""

    def __init__(
        self,
        initial: Mapping[str, Tensor],
        labels: Tensor,
        loss: SampleLoss | None,
        dtype: torch.dtype,
    ) -> None:
        self.flat = _FlatParameters({name: value.to(dtype) for name, value in initial.items()})
        self.labels = labels.contiguous()
        self.loss = loss
        self._targets: Tensor | None = None

    @abstractmethod
    def compute(self, batch: Tensor | None) -> None:
        """Write the gradient on the rows `batch` (None: all) into ``self.flat.gradients``."""

    def sgd_step(self, lr: float, momentum: float, weight_decay: float, *, nesterov: bool) -> None:
        """One update of all heads with the gradient computed last."""
        self.flat.sgd_step(lr, momentum, weight_decay, nesterov=nesterov)

    def trained(self) -> dict[str, Tensor]:
        """The current parameters, by the architecture's names."""
        return self.flat.values

    def _logit_gradient(self, logits: Tensor, batch: Tensor | None) -> Tensor:
        """Gradient of each head's mean loss with respect to its logits, shape (K, n, C)."""
        weight = 1 / logits.shape[1]
        if self.loss is None:
            delta = self._less_labels(torch.softmax(logits, dim=-1), batch).mul_(weight)
        else:
            labels = self.labels if batch is None else self.labels[:, batch]
            with torch.enable_grad():
                leaf = logits.detach().requires_grad_()
                losses = _of_each_sample(self.loss, leaf.flatten(0, 1), labels.flatten())
                (delta,) = torch.autograd.grad((losses * weight).sum(), leaf)
        return delta

    def _less_labels(self, probabilities: Tensor, batch: Tensor | None) -> Tensor:
        """The probabilities less 1 at the labels, in place; one-hot labels are kept only where every step needs all."""
        if batch is not None:
            classes = self.labels[:, batch].unsqueeze(-1)
            return probabilities.scatter_add_(-1, classes, probabilities.new_full(classes.shape, -1))
        if self._targets is None:
            self._targets = torch.nn.functional.one_hot(self.labels, probabilities.shape[-1]).to(
                probabilities.dtype
            )
        return probabilities.sub_(self._targets)


class _DenseGradient(_HeadGradient):
    """Linear (ReLU Linear)* by hand, one batched product per layer."""

    def __init__(
        self,
        heads: HeadStack,
        layers: LayerNames,
        features: Tensor,
        labels: Tensor,
        loss: SampleLoss | None,
    ) -> None:
        super().__init__(heads.parameters, labels, loss, features.dtype)
        self.features = features
        self.layers = weights_and_biases(self.flat.values, layers)
        self.gradients = weights_and_biases(self.flat.gradients, layers)

    def compute(self, batch: Tensor | None) -> None:
        """Forward, then backward layer by layer."""
        features = self.features if batch is None else self.features[..., batch, :]
        hidden = apply_linear(features, *self.layers[0])
        logits, entered = _upper_forward(self.layers[1:], hidden)
        delta = self._logit_gradient(logits, batch)
        delta = _relu_backward(self.layers[1:], self.gradients[1:], entered, delta)
        weight, bias = self.gradients[0]
        torch.matmul(delta.mT, features, out=weight)
        if bias is not None:
            torch.sum(delta, dim=1, out=bias)


class _GramGradient(_HeadGradient):
    """The same in Gram space: W_1 = alpha W_1(0) + B^T Z, with Z the samples and B of shape (n, width).

    The gradient of W_1 is delta^T Z, so SGD with momentum and decay never leaves that form: B receives
    delta as its gradient, and alpha, whose gradient is 0, only decays.
    """

    SAMPLES = "samples of the first layer"

    def __init__(
        self,
        heads: HeadStack,
        layers: LayerNames,
        features: Tensor,
        labels: Tensor,
        loss: SampleLoss | None,
    ) -> None:
        self.first, self.features = layers[0], features
        self.first_initial = heads.parameters[self.first[0]].to(features.dtype)
        width = self.first_initial.shape[1]
        coefficients = features.new_zeros(len(heads), features.shape[-2], width)
        upper = {name: value for name, value in heads.parameters.items() if name != self.first[0]}
        super().__init__({self.SAMPLES: coefficients, **upper}, labels, loss, features.dtype)
        self.gram = (features @ features.mT).expand(len(heads), -1, -1)
        self.projected = apply_linear(features, self.first_initial, None)
        self.alpha, self.alpha_momentum = 1.0, 0.0
        self.layers = weights_and_biases(self.flat.values, layers[1:])
        self.gradients = weights_and_biases(self.flat.gradients, layers[1:])

    def compute(self, batch: Tensor | None) -> None:
        """Forward, then backward, the first layer through the Gram matrix."""
        del batch  # Gram space serves full batches only
        base = self.projected if self.alpha == 1.0 else self.alpha * self.projected
        hidden = torch.baddbmm(base, self.gram, self.flat.values[self.SAMPLES])
        bias_name = self.first[1]
        if bias_name is not None:
            hidden.add_(self.flat.values[bias_name][:, None])
        logits, entered = _upper_forward(self.layers, hidden)
        delta = self._logit_gradient(logits, None)
        delta = _relu_backward(self.layers, self.gradients, entered, delta)
        self.flat.gradients[self.SAMPLES].copy_(delta)
        if bias_name is not None:
            torch.sum(delta, dim=1, out=self.flat.gradients[bias_name])

    def sgd_step(self, lr: float, momentum: float, weight_decay: float, *, nesterov: bool) -> None:
        """One update; alpha follows the same recursion with gradient 0."""
        super().sgd_step(lr, momentum, weight_decay, nesterov=nesterov)
        gradient = weight_decay * self.alpha
        self.alpha_momentum = momentum * self.alpha_momentum + gradient
        step = (
            self.alpha_momentum
            if not nesterov or momentum == 0
            else gradient + momentum * self.alpha_momentum
        )
        self.alpha -= lr * step

    def trained(self) -> dict[str, Tensor]:
        """The parameters with the first weight written out again."""
        coefficients = self.flat.values[self.SAMPLES]
        first = self.alpha * self.first_initial + coefficients.mT @ self.features
        upper = {name: value for name, value in self.flat.values.items() if name != self.SAMPLES}
        return {self.first[0]: first, **upper}


class _FunctionalGradient(_HeadGradient):
    """Any head, through torch.func; slower, same numbers."""

    def __init__(
        self,
        heads: HeadStack,
        features: Tensor,
        labels: Tensor,
        loss: SampleLoss | None,
    ) -> None:
        super().__init__(heads.parameters, labels, loss, features.dtype)
        self.features = features
        self.architecture = heads.architecture
        self.fixed = {name: self.flat.values[name].clone() for name in _fixed_priors(heads.architecture)}
        own = 0 if features.ndim == 3 else None
        self._gradient = vmap(grad(self._loss_of_one), in_dims=(0, own, 0), randomness="different")

    def compute(self, batch: Tensor | None) -> None:
        """Per-head gradients by vmap(grad)."""
        features = self.features if batch is None else self.features[..., batch, :]
        labels = self.labels if batch is None else self.labels[:, batch]
        gradients = self._gradient(self.flat.values, features, labels)
        for name, value in gradients.items():
            self.flat.gradients[name].copy_(value)

    def sgd_step(self, lr: float, momentum: float, weight_decay: float, *, nesterov: bool) -> None:
        """One update; priors that are not learned stay."""
        super().sgd_step(lr, momentum, weight_decay, nesterov=nesterov)
        for name, value in self.fixed.items():
            self.flat.values[name].copy_(value)

    def _loss_of_one(self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor) -> Tensor:
        logits = functional_call(self.architecture, parameters, (features,))
        if self.loss is None:
            losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        else:
            losses = _of_each_sample(self.loss, logits, labels)
        return (losses * (1 / len(labels))).sum()


def _of_each_sample(loss: SampleLoss, logits: Tensor, labels: Tensor) -> Tensor:
    losses = loss(logits, labels)
    if losses.shape != labels.shape:
        raise ValueError(
            f"`loss` must give a number for each sample, shape {tuple(labels.shape)}; got {tuple(losses.shape)}. Give "
            'one that does not take their mean, such as functools.partial(cross_entropy, reduction="none").'
        )
    return losses


def _fixed_priors(architecture: nn.Module) -> list[str]:
    """Names of the priors of mixtures that do not learn them."""
    mixtures = ((name, one) for name, one in architecture.named_modules() if isinstance(one, GaussianMixture))
    return [
        f"{name}.log_priors" if name else "log_priors" for name, one in mixtures if not one._learned_priors
    ]


def _descend(
    heads: HeadStack, gradient: _HeadGradient, batches: list[Tensor | None], training: HeadTraining
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
    loss: SampleLoss | None,
    training: HeadTraining,
) -> _HeadGradient:
    features = at_least_float32(features)
    layers = linear_layers(heads.architecture)
    if layers is None:
        return _FunctionalGradient(heads, features, labels, loss)
    full_batch = training.batch_size is None or training.batch_size >= features.shape[-2]
    if full_batch and 2 * features.shape[-2] <= features.shape[-1]:
        return _GramGradient(heads, layers, features, labels, loss)
    return _DenseGradient(heads, layers, features, labels, loss)


def _upper_forward(layers: list[tuple[Tensor, Tensor | None]], hidden: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits from the first layer's output, and what entered each later layer."""
    entered = []
    for weight, bias in layers:
        hidden = torch.relu(hidden)
        entered.append(hidden)
        hidden = apply_linear(hidden, weight, bias)
    return hidden, entered


class _FlatParameters:
    """Values, gradients and momentum of named tensors, each kind in one contiguous buffer.

    The update is that of torch.optim.SGD: g + wd p, then momentum, then Nesterov's look-ahead.
    """

    def __init__(self, initial: Mapping[str, Tensor]) -> None:
        sizes = [value.numel() for value in initial.values()]
        self._values = torch.cat([value.detach().reshape(-1) for value in initial.values()])
        self._gradients = torch.zeros_like(self._values)
        self._momentum = torch.zeros_like(self._values)
        shapes = {name: value.shape for name, value in initial.items()}
        self.values = _views(self._values, shapes, sizes)
        self.gradients = _views(self._gradients, shapes, sizes)

    def sgd_step(self, lr: float, momentum: float, weight_decay: float, *, nesterov: bool) -> None:
        """One step of all heads."""
        gradient = self._gradients
        if weight_decay:
            gradient.add_(self._values, alpha=weight_decay)
        if momentum:
            self._momentum.mul_(momentum).add_(gradient)
            gradient = gradient.add_(self._momentum, alpha=momentum) if nesterov else self._momentum
        self._values.sub_(gradient, alpha=lr)


def _views(flat: Tensor, shapes: Mapping[str, torch.Size], sizes: list[int]) -> dict[str, Tensor]:
    pieces = flat.split(sizes)
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def _relu_backward(
    layers: Sequence[WeightAndBias],
    gradients: Sequence[WeightAndBias],
    activations: Sequence[Tensor],
    delta: Tensor,
) -> Tensor:
    """Write the gradient of each layer into `gradients`; return that of the first layer's output.

    `layers` are all but the first, which the caller handles, and `gradients` is shaped like it. `activations` entered
    them, (K, n, i), after ReLU; `delta` is the gradient of the logits, (K, n, C).
    """
    for (weight, _), (grad_weight, grad_bias), entered in zip(
        reversed(layers), reversed(gradients), reversed(activations), strict=True
    ):
        torch.bmm(delta.mT, entered, out=grad_weight)
        if grad_bias is not None:
            torch.sum(delta, dim=1, out=grad_bias)
        # relu'(z) is 1 where its output is above 0
        delta = torch.ops.aten.threshold_backward(torch.bmm(delta, weight), entered, 0)
    return delta
