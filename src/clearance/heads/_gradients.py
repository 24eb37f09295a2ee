"""Three ways to the same gradient of K heads: dense, in Gram space, and through torch.func."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from clearance.heads._parameters import FlatParameters
from clearance.heads._relu_layers import apply_linear, relu_backward
from clearance.heads.stack import HeadStack

SampleLoss = Callable[[Tensor, Tensor], Tensor]
LayerNames = list[tuple[str, str | None]]


class HeadGradient(ABC):
    """The gradient of the mean loss of each of K heads, on data that stays in place."""

    def __init__(
        self,
        initial: Mapping[str, Tensor],
        labels: Tensor,
        mask: Tensor | None,
        loss: SampleLoss | None,
        dtype: torch.dtype,
    ) -> None:
        self.flat = FlatParameters({name: value.to(dtype) for name, value in initial.items()})
        self.labels = labels.contiguous()
        self.counts = (
            torch.ones(labels.shape, dtype=dtype, device=labels.device) if mask is None else mask.to(dtype)
        )
        self.masked = mask is not None
        self.loss = loss
        self._full = self._sample_weights(None)
        self._targets: Tensor | None = None

    @abstractmethod
    def compute(self, batch: Tensor | None) -> None:
        """Write the gradient on the rows `batch` (None: all) into ``self.flat.gradients``."""

    def sgd_step(self, lr: float, momentum: float, weight_decay: float, *, nesterov: bool) -> None:
        """One update of all heads with the gradient computed last."""
        self.flat.sgd_step(lr, momentum, weight_decay, nesterov=nesterov)

    def trained(self) -> dict[str, Tensor]:
        """The parameters as they stand, under the architecture's names."""
        return self.flat.values

    def _sample_weights(self, batch: Tensor | None) -> Tensor:
        counts = self.counts if batch is None else self.counts[:, batch]
        return (counts / counts.sum(dim=1, keepdim=True).clamp(min=1))[..., None]

    def _logit_gradient(self, logits: Tensor, batch: Tensor | None) -> Tensor:
        """Gradient of each head's mean loss with respect to its logits, shape (K, n, C)."""
        weights = self._full if batch is None else self._sample_weights(batch)
        if self.loss is None:
            delta = torch.softmax(logits, dim=-1).sub_(self._one_hot(logits, batch)).mul_(weights)
        else:
            labels = self.labels if batch is None else self.labels[:, batch]
            with torch.enable_grad():
                leaf = logits.detach().requires_grad_()
                losses = self.loss(leaf.flatten(0, 1), labels.flatten())
                (delta,) = torch.autograd.grad((losses * weights.flatten()).sum(), leaf)
        # A masked sample has weight 0, but 0 times inf is not a number.
        return torch.where(weights > 0, delta, 0) if self.masked else delta

    def _one_hot(self, logits: Tensor, batch: Tensor | None) -> Tensor:
        if self._targets is None:
            self._targets = torch.nn.functional.one_hot(self.labels, logits.shape[-1]).to(logits.dtype)
        return self._targets if batch is None else self._targets[:, batch]


class DenseGradient(HeadGradient):
    """Linear (ReLU Linear)* by hand, one batched product per layer."""

    def __init__(
        self,
        heads: HeadStack,
        layers: LayerNames,
        features: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        loss: SampleLoss | None,
    ) -> None:
        super().__init__(heads.parameters, labels, mask, loss, features.dtype)
        self.features = features
        self.layers = [_pair(self.flat.values, names) for names in layers]
        self.gradients = [_pair(self.flat.gradients, names) for names in layers]

    def compute(self, batch: Tensor | None) -> None:
        """Forward, then backward layer by layer."""
        features = self.features if batch is None else self.features[..., batch, :]
        hidden = apply_linear(features, *self.layers[0])
        logits, entered = _upper_forward(self.layers[1:], hidden)
        delta = self._logit_gradient(logits, batch)
        delta = relu_backward(self.layers[1:], self.gradients[1:], entered, delta)
        weight, bias = self.gradients[0]
        torch.matmul(delta.mT, features, out=weight)
        if bias is not None:
            torch.sum(delta, dim=1, out=bias)


class GramGradient(HeadGradient):
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
        mask: Tensor | None,
        loss: SampleLoss | None,
    ) -> None:
        self.first, self.features = layers[0], features
        self.first_initial = heads.parameters[self.first[0]].to(features.dtype)
        width = self.first_initial.shape[1]
        coefficients = features.new_zeros(len(heads), features.shape[-2], width)
        upper = {name: value for name, value in heads.parameters.items() if name != self.first[0]}
        super().__init__({self.SAMPLES: coefficients, **upper}, labels, mask, loss, features.dtype)
        self.gram = (features @ features.mT).expand(len(heads), -1, -1)
        self.projected = apply_linear(features, self.first_initial, None)
        self.alpha, self.alpha_momentum = 1.0, 0.0
        self.layers = [_pair(self.flat.values, names) for names in layers[1:]]
        self.gradients = [_pair(self.flat.gradients, names) for names in layers[1:]]

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
        delta = relu_backward(self.layers, self.gradients, entered, delta)
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


class FunctionalGradient(HeadGradient):
    """Any head, through torch.func; slower, same numbers."""

    def __init__(
        self,
        heads: HeadStack,
        features: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        loss: SampleLoss | None,
    ) -> None:
        super().__init__(heads.parameters, labels, mask, loss, features.dtype)
        self.features = features
        self.architecture = heads.architecture
        own = 0 if features.ndim == 3 else None
        self._gradient = vmap(grad(self._loss_of_one), in_dims=(0, own, 0, 0), randomness="different")

    def compute(self, batch: Tensor | None) -> None:
        """Per-head gradients by vmap(grad)."""
        features = self.features if batch is None else self.features[..., batch, :]
        labels = self.labels if batch is None else self.labels[:, batch]
        weights = self._full if batch is None else self._sample_weights(batch)
        gradients = self._gradient(self.flat.values, features, labels, weights[..., 0])
        for name, value in gradients.items():
            self.flat.gradients[name].copy_(value)

    def _loss_of_one(
        self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor, weights: Tensor
    ) -> Tensor:
        logits = functional_call(self.architecture, parameters, (features,))
        if self.masked:  # here too a gradient of 0 must not meet an infinite one
            logits = torch.where(weights[:, None] > 0, logits, 0)
        if self.loss is None:
            losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        else:
            losses = self.loss(logits, labels)
        return torch.where(weights > 0, losses * weights, 0).sum()


def _pair(named: Mapping[str, Tensor], names: tuple[str, str | None]) -> tuple[Tensor, Tensor | None]:
    weight, bias = names
    return named[weight], None if bias is None else named[bias]


def _upper_forward(layers: list[tuple[Tensor, Tensor | None]], hidden: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits from the first layer's output, and what entered each later layer."""
    entered = []
    for weight, bias in layers:
        hidden = torch.relu(hidden)
        entered.append(hidden)
        hidden = apply_linear(hidden, weight, bias)
    return hidden, entered
