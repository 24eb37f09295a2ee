"""How well do the features separate classes left out of training?"""

from dataclasses import dataclass
from typing import ClassVar

from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits.co_adaptation import CoAdaptation, HeadErrors
from clearance.vocabulary import Measurement, Scalar


@dataclass(frozen=True)
class NewClasses(Audit):
    """The error of fresh heads on classes that were left out of training, from a few images of each.

    The extractor is frozen; heads are trained on 1, 5 and 20 images of every new class and tested on other
    images of these classes alone. Heads, partial sets and training are those of :class:`CoAdaptation`:
    ``retrained``, ``linear``, ``class mean``, ``class mean, unit length``, ``nearest neighbour`` and, on raw
    pixels whatever the model, ``nearest pixel`` and ``class mean, pixels``.

    Measurements, for each head and k: ``error`` (mean over draws of k images, with their standard deviation);
    a trained head that diverges counts as chance-level error. The exact question is that of transfer, which
    Sato et al. (2019) do not measure; nothing they claim is judged by it.

    Args:
        per_class: Images of every new class, ascending; sizes that the new classes do not allow are left out.
        repetitions: Draws for each of `per_class`.
        hidden: Hidden widths of the retrained head.
        lr: Step size of fresh heads.

    A model without named new classes (see :class:`Subject`) gets no measurement, nor with a single new class, because
    there is nothing to separate then.

    Misleads when the classes left out resemble those that were kept: compare several draws of classes, and
    the nearest pixel.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.data.subsets import split_classes
    >>> from clearance.models import Classifier
    >>> train, new = split_classes(gaussian_images(class_count=6, per_class=9), (0, 1, 2))
    >>> found = NewClasses(per_class=(1,), repetitions=(4,))(
    ...     Classifier(nn.Flatten(), nn.Linear(64, 3)), train, train, new_classes=(new, new))
    >>> found.measurements[0].context["per_class"]
    1
    """

    name: ClassVar[str] = "new_classes"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    per_class: tuple[int, ...] = (1, 5, 20)
    repetitions: tuple[int, ...] = (50, 20, 10)
    hidden: tuple[int, ...] = (128, 128)
    lr: float = 0.03

    def __post_init__(self) -> None:
        self._fresh_heads()

    def examine(self, subject: Subject) -> Findings:
        """Every head on every number of images."""
        if subject.new_classes is None or subject.new_classes.classes < 2:
            return Findings(())
        classes = subject.new_classes.classes
        found = self._fresh_heads().errors(subject.new_classes)
        return Findings(tuple(_measurement(errors, classes) for errors in found))

    def _fresh_heads(self) -> CoAdaptation:
        return CoAdaptation(self.per_class, self.repetitions, self.hidden, self.lr, all_images=False)


def _measurement(found: HeadErrors, classes: int) -> Measurement:
    context: dict[str, Scalar] = {"head": found.head, "per_class": found.samples // classes}
    return mean_of(NewClasses.name, "error", found.errors, "fraction", "lower", context)
