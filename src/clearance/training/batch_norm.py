"""Batch normalisation under FOCA: statistics of the weak heads' batches, and running statistics recomputed."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import nn

from clearance._checks import check_count
from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import Classifier

BatchNormPolicy = Literal["batch", "running", "update"]
_BatchNorm = nn.modules.batchnorm._BatchNorm


def recalibrate_batch_norm(model: Classifier, data: ImageSet, batch_size: int = 512) -> None:
    """Recompute the extractor's running statistics by one pass over the training images.

    Each layer's running mean and variance become the plain averages of its batches' means and (unbiased)
    variances, all batches alike, under the current weights. During training they lag behind the
    weights, and depend on the most recent batches.

    Weights, head and frozen layers are unchanged; without batch normalisation nothing happens. `data` are the training
    images, without augmentation, in batches of at least 2 in a fixed order, of equal size up to one image.

    Raises:
        ValueError: If `batch_size` is below 2, or `data` holds one image: a variance needs two.

    Limits: with small batches the mean of variances within batches misses the spread between them.

    >>> from clearance.data import gaussian_images
    >>> model = Classifier(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16)), nn.Linear(16, 3))
    >>> data = gaussian_images(shape=(1, 4, 4))
    >>> recalibrate_batch_norm(model, data)
    >>> torch.allclose(model.extractor[1].running_mean, data.images.flatten(1).mean(dim=0))
    True
    """
    check_count("batch_size", batch_size, minimum=2)
    kept = frozen_layers(model.extractor)
    layers = [layer for layer in _tracking_layers(model.extractor) if layer not in kept]
    if not layers:
        return
    if len(data) < 2:
        raise ValueError(
            f"`data` must hold at least 2 images, because a variance needs two; got {len(data)}."
        )
    # Sets may be sorted by class, and a batch of one class misses the spread between classes.
    order = torch.randperm(len(data), generator=generator(0, "recalibration"))
    device = device_of(model)
    momenta = [layer.momentum for layer in layers]
    before = [[buffer.clone() for buffer in layer.buffers(recurse=False)] for layer in layers]
    whole = False
    batches = min(math.ceil(len(data) / batch_size), len(data) // 2)
    with evaluating(model):
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum, layer.training = None, True  # None: the plain average of all batches
        try:
            for rows in order.tensor_split(batches):
                model.features(data.batch(rows.to(data.labels.device))[0].to(device))
            whole = True
        finally:
            for layer, momentum, kept_values in zip(layers, momenta, before, strict=True):
                layer.momentum = momentum
                assert layer.num_batches_tracked is not None
                if not whole or not int(layer.num_batches_tracked):  # interrupted, or it runs elsewhere
                    for buffer, value in zip(layer.buffers(recurse=False), kept_values, strict=True):
                        buffer.copy_(value)


def head_batch_statistics(module: nn.Module, policy: BatchNormPolicy) -> AbstractContextManager[None]:
    """Inside the block, batch normalisation treats the weak heads' batch as `policy` says.

    ``"batch"``: its own statistics, and the running ones are unchanged; ``"running"``: the running ones;
    ``"update"``: its own, which also update the running ones.
    """
    if policy == "batch":
        return _switched_off(module, "track_running_stats")
    return _switched_off(module, "training") if policy == "running" else nullcontext()


@contextmanager
def _switched_off(module: nn.Module, flag: Literal["track_running_stats", "training"]) -> Iterator[None]:
    """Switch this flag off for batch normalisation in training mode inside the block."""
    layers = [layer for layer in _tracking_layers(module) if layer.training]
    for layer in layers:
        setattr(layer, flag, False)
    try:
        yield
    finally:
        for layer in layers:
            setattr(layer, flag, True)


def frozen_layers(module: nn.Module) -> list[_BatchNorm]:
    """Batch normalisation whose weights are frozen; one without weights, if all weights of `module` are.

    >>> layer = nn.BatchNorm1d(2)
    >>> frozen_layers(layer), frozen_layers(layer.requires_grad_(False)) == [layer]
    ([], True)
    """
    weights = list(module.parameters())
    frozen = bool(weights) and not any(weight.requires_grad for weight in weights)
    layers = (one for one in module.modules() if isinstance(one, _BatchNorm))
    return [one for one in layers if (not one.weight.requires_grad if one.affine else frozen)]


def _tracking_layers(module: nn.Module) -> list[_BatchNorm]:
    """The batch-normalisation layers that keep running statistics."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
