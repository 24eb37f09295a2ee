"""How much do features one layer of the head later depend on what follows them?"""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from clearance._checks import check_count
from clearance.audits._audit import Findings, Subject
from clearance.audits.co_adaptation import CoAdaptation
from clearance.models.classifier import Classifier
from clearance.vocabulary import Measurement

CUT = 1  # linear layers of the head that become part of the extractor


@dataclass(frozen=True)
class DeeperCut(CoAdaptation):
    """The question of :class:`CoAdaptation`, asked of the features one linear layer of the head later.

    The first linear layer of the model's head, with what follows it up to the next one, counts as extractor
    (`cut_deeper`); everything else is as in CoAdaptation: partial sets, heads,
    their training, measurements, and the model's own error for the gap. The same network, cut later: beside
    `co_adaptation` it shows whether what a method does to features is there only where it cut.

    Measurements: those of CoAdaptation, each with ``"cut": 1`` in its context. None at all for a model whose
    head has no later cut (one linear layer, or no sequence): a comparison continues without it.

    Args:
        per_class: As in CoAdaptation, like those that follow.
        repetitions: As there.
        hidden: As there; the retrained head has the same hidden widths behind either cut.
        lr: As there.
        least_steps: As there.
        passes: As there.
        most_steps: As there.
        all_images: As there.
        pixel_limit: As there, but 0: the nearest pixel does not depend on the model, so it is measured already.
        neighbour_limit: As there.

    Misleads: the layer that counts as extractor here was part of the head in training. End-to-end training
    makes no difference between them, FOCA does: it trains that layer last, with the features frozen.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.heads import MLP
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> audit = DeeperCut(per_class=(1,), repetitions=(5,), all_images=False)
    >>> found = audit(Classifier(nn.Flatten(), MLP((64, 16, 3))), train, test)
    >>> dict(found.measurements[0].context)
    {'head': 'retrained', 'samples': 3, 'cut': 1}
    >>> audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test).measurements
    ()
    """

    name: ClassVar[str] = "deeper_cut"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    pixel_limit: int = 0

    def examine(self, subject: Subject) -> Findings:
        """Every head on every partial set, on the later features."""
        try:
            later = cut_deeper(subject.model, CUT)
        except HeadCutError:
            return Findings(())
        found = super().examine(Subject(later, subject.train, subject.test, subject.seed))
        return Findings(tuple(_renamed(measurement) for measurement in found.measurements))


def _renamed(found: Measurement) -> Measurement:
    return replace(found, audit=DeeperCut.name, context={**found.context, "cut": CUT})


class HeadCutError(ValueError):
    """This head cannot be cut there; the message gives the reason."""


def cut_deeper(model: Classifier, layers: int = 1) -> Classifier:
    """Move the first linear layers of the head into the extractor; logits stay the same to the bit.

    Each linear layer moves with everything up to the next one (normalisation, ReLU, dropout), the first also with
    everything before it. Results on features depend on the cut: in the same network, a new head on the features after
    a layer of the head can need far fewer images than one on those before it.

    Nothing is copied and `model` does not change: both classifiers share weights, buffers and modules, so training or
    moving one trains or moves the other.

    The head is a sequence (nested or not) with more than `layers` linear layers, at least 1, as
    :class:`clearance.heads.MLP` is. Features then have the width that enters linear layer ``layers + 1`` of the head.

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
