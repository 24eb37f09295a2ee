"""How much do features one layer of the head later depend on what follows them?"""

from dataclasses import dataclass, replace
from typing import ClassVar

from clearance.audits._audit import Findings, Subject
from clearance.audits.co_adaptation import CoAdaptation
from clearance.models.recut import HeadCutError, cut_deeper
from clearance.vocabulary import Measurement

CUT = 1  # linear layers of the head that become part of the extractor


@dataclass(frozen=True)
class DeeperCut(CoAdaptation):
    """The question of :class:`CoAdaptation`, asked of the features one linear layer of the head later.

    The first linear layer of the model's head, with what follows it up to the next one, counts as extractor
    (:func:`clearance.models.recut.cut_deeper`); everything else is as in CoAdaptation: partial sets, heads,
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
    question: ClassVar[str] = "How much does co-adaptation change where the network is cut one layer later?"
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
