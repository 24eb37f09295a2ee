"""The same classifier with a later cut: a part of its head moves into its extractor."""

from torch import nn

from clearance._checks import check_count
from clearance.models.classifier import Classifier


class HeadCutError(ValueError):
    """This head cannot be cut there; the message gives the reason."""


def cut_deeper(model: Classifier, layers: int = 1) -> Classifier:
    """Move the first linear layers of the head into the extractor; logits stay the same to the bit.

    Each linear layer moves with everything up to the next one (normalisation, ReLU, dropout), the first also with
    everything before it. Results on features depend on the cut: in the same network, a new head on the features after
    a layer of the head can need far fewer images than one on those before it.

    Nothing is copied and `model` does not change: both classifiers share weights, buffers and modules, so training or
    moving one trains or moves the other.

    Args:
        model: Its head is a sequence (nested or not) with more than `layers` linear layers, as
            :class:`clearance.heads.MLP` is.
        layers: Number of linear layers to move, at least 1.

    Returns:
        A classifier whose features have the width that enters linear layer ``layers + 1`` of the head.

    Raises:
        HeadCutError: A ValueError, if the head is not a plain sequence, has too few linear layers or has some in a
            submodule that is not a sequence, or has weights on both sides of the cut.

    >>> import torch
    >>> from clearance.heads import MLP
    >>> model = Classifier(nn.Flatten(), MLP((16, 8, 6, 3)))
    >>> images = torch.rand(5, 1, 4, 4)
    >>> later = cut_deeper(model)
    >>> later.features(images).shape, torch.equal(later(images), model(images))
    (torch.Size([5, 8]), True)
    """
    check_count("layers", layers)
    parts = _parts(model.head)
    linear = [place for place, part in enumerate(parts) if isinstance(part, nn.Linear)]
    if len(linear) <= layers:
        raise HeadCutError(
            f"the head must hold more than {layers} linear layers in sequence, so that one is left to be the "
            f"head; got {len(linear)} in the {type(model.head).__name__}. Cut fewer layers, or leave it."
        )
    moved, kept = nn.Sequential(*parts[: linear[layers]]), nn.Sequential(*parts[linear[layers] :])
    _refuse_shared(moved, kept)
    extractor = nn.Sequential(model.extractor, moved)
    later = Classifier(extractor, kept)
    later.mean, later.std = model.mean, model.std
    for container in (later, extractor, moved, kept):
        container.training = model.training  # never .train(): parts that are shared keep their own mode
    return later


def _parts(head: nn.Module) -> list[nn.Module]:
    """What a head runs, in order: itself, or the parts of the sequence (and of sequences in it)."""
    if isinstance(head, nn.Sequential) and type(head).forward is nn.Sequential.forward:
        if head._forward_hooks or head._forward_pre_hooks:
            raise HeadCutError(
                f"the head must not have hooks where it is cut; got some on its {type(head).__name__}. Put them "
                "on its layers."
            )
        return [part for child in head for part in _parts(child)]
    if not isinstance(head, nn.Linear) and any(isinstance(part, nn.Linear) for part in head.modules()):
        raise HeadCutError(
            f"the head must be a plain sequence of layers; got linear layers inside a {type(head).__name__}, "
            "whose order is not known. Write it as nn.Sequential."
        )
    return [head]


def _refuse_shared(moved: nn.Module, kept: nn.Module) -> None:
    before = {id(parameter) for parameter in moved.parameters()}
    shared = [name for name, parameter in kept.named_parameters() if id(parameter) in before]
    if shared:
        raise HeadCutError(
            "the two sides of the cut must not share weights; got "
            f"{', '.join(map(repr, shared))} of the new head in the extractor too. Untie them, or leave it."
        )
