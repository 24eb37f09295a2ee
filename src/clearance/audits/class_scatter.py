"""How compact are the classes in feature space?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits._heads import are_a_cloud, check_spread
from clearance.data import ImageSet
from clearance.data.subsets import evenly_spaced
from clearance.geometry import class_scatter, nc1, within_between_ratio
from clearance.geometry.scatter import class_distance_normalised_variances
from clearance.geometry.spectrum import principal_axes
from clearance.vocabulary import Exhibit, Measurement, Scalar

PICTURED_IMAGES = 500


@dataclass(frozen=True)
class ClassScatter(Audit):
    """How tightly the features of a class sit together, compared with how far classes are apart.

    ``within_between``: tr S_W / tr S_B. ``cdnv``: mean over class pairs of (Var_c + Var_c') / (2 d^2).
    ``nc1``: tr(S_W S_B^+) / C. All three are 0 where every class is a point of its own, do not change when
    features are shifted, rotated or scaled, and are given for training and held-out images. They are infinite
    where all features are equal or one is not finite: a broken extractor gains nothing.

    The exhibit ``features`` is the projection of held-out features on their first two principal axes.

    Raises:
        ValueError: If a set has no class with two images, which would all pass for points.

    Misleads in the picture: two of many axes are shown, and classes that overlap there may be far apart. And where a
    class has few images for its many features: then all three are too small, of the same features with five images of
    a class several times, so that such a test set looks tighter than a larger training set.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = ClassScatter()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements if m.context["split"] == "test"]
    ['within_between', 'cdnv', 'nc1']
    """

    name: ClassVar[str] = "class_scatter"
    needs: ClassVar[tuple[str, ...]] = ("features",)

    def examine(self, subject: Subject) -> Findings:
        """Ratios on both sets and the picture of the held-out one."""
        splits = {
            "test": (subject.test_features, subject.test),
            "train": (subject.train_features, subject.train),
        }
        found = [m for split, (features, data) in splits.items() for m in _ratios(features, data, split)]
        return Findings(tuple(found), (_picture(subject.test_features, subject.test),))


def _ratios(features: Tensor, data: ImageSet, split: str) -> list[Measurement]:
    classes, labels = data.class_count, data.labels
    check_spread(data, split)
    context: dict[str, Scalar] = {"split": split}
    pairs = torch.full((classes * (classes - 1) // 2,), torch.inf)
    ratio = collapse = torch.inf
    if are_a_cloud(features):
        cloud = class_scatter(features, labels, classes)
        # 0 / 0 is a pair of classes in one point
        pairs = class_distance_normalised_variances(cloud).nan_to_num(torch.inf, torch.inf)
        ratio, collapse = within_between_ratio(cloud), nc1(features, labels, classes)

    def of_images(name: str, value: float) -> Measurement:
        return Measurement(
            ClassScatter.name, name, value, "ratio", len(data), better="lower", context=context
        )

    of_pairs = mean_of(ClassScatter.name, "cdnv", pairs, "ratio", "lower", context)
    return [of_images("within_between", ratio), of_pairs, of_images("nc1", collapse)]


def _picture(features: Tensor, data: ImageSet) -> Exhibit:
    rows = evenly_spaced(len(data), PICTURED_IMAGES).to(features.device)
    kept = features[rows].nan_to_num(0.0, 0.0, 0.0).double()
    places = ((kept - kept.mean(dim=0)) @ principal_axes(kept, 2).T).cpu()
    return Exhibit(
        audit=ClassScatter.name,
        name="features",
        kind="scatter",
        columns={
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "label": [data.classes[k] for k in data.labels[rows].tolist()],
        },
        caption="Held-out features on their first two principal axes, each point an image.",
        context={"split": "test"},
    )
