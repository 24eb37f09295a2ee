"""How much do features one layer of the head later depend on what follows them?"""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

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

    Settings are those of CoAdaptation, but that `pixel_limit` is 0: the nearest pixel does not depend on the model, so
    it is measured already.

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
    pixel_limit: int = 0

    def examine(self, subject: Subject) -> Findings:
        """Every head on every partial set, on the later features."""
        later = cut_deeper(subject.model)
        if later is None:
            return Findings(())
        found = super().examine(Subject(later, subject.train, subject.test, subject.seed))
        return Findings(tuple(_renamed(measurement) for measurement in found.measurements))


def _renamed(found: Measurement) -> Measurement:
    return replace(found, audit=DeeperCut.name, context={**found.context, "cut": CUT})


def cut_deeper(model: Classifier) -> Classifier | None:
    """Move the first linear layer of the head into the extractor; logits stay the same to the bit.

    The layer moves with everything up to the next one (normalisation, ReLU, dropout) and everything before it. Results
    on features depend on the cut: in the same network, a new head on the features after a layer of the head can need
    far fewer images than one on those before it.

    Nothing is copied and `model` does not change: both classifiers share weights, buffers and modules, so training or
    moving one trains or moves the other.

    None if the head is no sequence (nested or not) with at least two linear layers, as :class:`clearance.heads.MLP` is:
    with linear layers in a submodule of another kind, hooks on the sequence, or weights on both sides of the cut.

    >>> import torch
    >>> from clearance.heads import MLP
    >>> model = Classifier(nn.Flatten(), MLP((16, 8, 6, 3)))
    >>> images = torch.rand(5, 1, 4, 4)
    >>> later = cut_deeper(model)
    >>> later.features(images).shape, torch.equal(later(images), model(images))
    (torch.Size([5, 8]), True)
    """
    parts = _parts(model.head)
    linear = [place for place, part in enumerate(parts) if isinstance(part, nn.Linear)]
    hidden = any(_holds_linear(part) for part in parts if not isinstance(part, nn.Linear))
    if hidden or len(linear) < 2:
        return None
    moved, kept = nn.Sequential(*parts[: linear[1]]), nn.Sequential(*parts[linear[1] :])
    if {id(one) for one in moved.parameters()} & {id(one) for one in kept.parameters()}:
        return None
    extractor = nn.Sequential(model.extractor, moved)
    later = Classifier(extractor, kept)
    later.mean, later.std = model.mean, model.std
    for container in (later, extractor, moved, kept):
        container.training = model.training  # never .train(): parts that are shared keep their own mode
    return later


def _parts(head: nn.Module) -> list[nn.Module]:
    """What a head runs, in order: itself, or the parts of the plain sequence (and of sequences in it)."""
    plain = isinstance(head, nn.Sequential) and type(head).forward is nn.Sequential.forward
    if not plain or head._forward_hooks or head._forward_pre_hooks:
        return [head]
    parts = head._modules.values()  # `children` leaves out what is used again
    return [part for child in parts if child is not None for part in _parts(child)]


def _holds_linear(part: nn.Module) -> bool:
    return any(isinstance(one, nn.Linear) for one in part.modules())
