"""The toy of Fig. 1b: two classes in the plane, cross-entropy against a large margin, and exact distances.

What the paper says of it: two-dimensional data, a network of four layers, 10,000 steps of each loss; both come to
100 % on the training points, and the margin's boundary is the better shaped and errs less on test points. All else
is ours: the data (two moons with little noise to train on, more to test on), widths, optimiser, margin.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from clearance._checks import check_count, check_positive
from clearance._files import write_bytes
from clearance._rng import derived_seed
from clearance.data import ImageSet
from clearance.experiments.provenance import report_with
from clearance.experiments.reproductions.elsayed_2018.boundary import boundary_points, distances_to
from clearance.experiments.reproductions.elsayed_2018.toy_ledger import write_ledger
from clearance.experiments.reproductions.elsayed_2018.toy_picture import picture
from clearance.experiments.run import RunFindings
from clearance.experiments.study_request import StudyRequest
from clearance.heads import MLP
from clearance.models import Classifier
from clearance.objectives import CrossEntropyLoss, Objective
from clearance.objectives.gamma import GammaQuantile
from clearance.objectives.large_margin import LargeMarginLoss
from clearance.records import ExhibitRecord, Record
from clearance.regimes import EndToEnd
from clearance.report import Card
from clearance.report.paper_figure import as_png
from clearance.vocabulary import Exhibit, Measurement

Loss = Literal["cross-entropy", "margin-l2"]
LOSSES: tuple[Loss, ...] = ("cross-entropy", "margin-l2")
HIDDEN = ("extractor.2", "extractor.4", "extractor.6")
NAME = "toy"
SEEDS = 5
CLASSES = ("upper", "lower")
COMMAND = "clearance reproduce elsayed-2018 --only toy"
PICTURE = "toy.png"
CURVE_POINTS = 400  # of a boundary that are drawn


@dataclass(frozen=True)
class ToySettings:
    """What can be changed about the toy; the defaults are those of the ledger.

    Args:
        per_class: Training points of each class, at least 2.
        test_per_class: Test points of each class.
        noise: Standard deviation of a training point around its moon, whose radius is 1; above 0.
        test_noise: The same for test points.
        steps: Updates, each on all training points; 10,000 in the paper.
        lr: Adam's step size, the same for both losses.
        gamma: Margin that is asked for at the input, in the unit of the picture, whose side is 1. At the three
            hidden layers it is the 0.9 quantile of the distances in the first 500 steps.
        resolution: Cells along a side of the grid on which the boundary is found.

    >>> ToySettings(steps=0)
    Traceback (most recent call last):
    ValueError: `steps` must be a whole number of at least 1; got 0.
    """

    per_class: int = 20
    test_per_class: int = 500
    noise: float = 0.1
    test_noise: float = 0.2
    steps: int = 10_000
    lr: float = 1e-3
    gamma: float = 0.05
    resolution: int = 400

    def __post_init__(self) -> None:
        for name in ("steps", "resolution", "test_per_class"):
            check_count(name, getattr(self, name))
        check_count("per_class", self.per_class, minimum=2)
        for name in ("noise", "test_noise", "lr", "gamma"):
            check_positive(name, getattr(self, name))


def moons(per_class: int, noise: float, seed: int) -> ImageSet:
    """Two moons as images of two channels and one pixel, brought into [0, 1] by the same map for every draw.

    >>> moons(10, 0.1, seed=0)
    ImageSet('two moons', 20 images of shape (2, 1, 1), 2 classes)
    """
    from sklearn.datasets import make_moons  # slow to import, and only toys need it

    drawn = derived_seed(seed, "moons") % 2**32
    places, labels = make_moons(2 * per_class, noise=noise, random_state=drawn)
    images = ((torch.tensor(places) + torch.tensor([1.5, 2.0])) / 4.5).float().clamp(0, 1)
    return ImageSet(images[:, :, None, None], torch.tensor(labels), CLASSES, name="two moons")


def toy_classifier(seed: int) -> Classifier:
    """The untrained network of four layers, 2-64-64-64-2 with softplus; first weights after He et al. (2015).

    Softplus, because a first-order distance is nearer to the true one where nothing has a kink.

    Shapes:
        images (B, 2, 1, 1) to logits (B, 2).

    >>> toy_classifier(0)(torch.zeros(3, 2, 1, 1)).shape
    torch.Size([3, 2])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "toy"))
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs in (2, 64, 64):
            layer = nn.Linear(inputs, 64)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.Softplus()]
        head = MLP((64, 2))
    return Classifier(nn.Sequential(*layers), head, mean=0.5, std=0.25)


def trained(loss: Loss, train: ImageSet, settings: ToySettings, seed: int) -> Classifier:
    """A network trained on all points in every step, from the same first weights for both losses."""
    model = toy_classifier(seed)
    regime = EndToEnd(_objective(loss, settings))
    optimizer = torch.optim.Adam(list(regime.trainable(model)), lr=settings.lr)
    training = regime.start(model, train, optimizer, regime.generators(seed))
    model.train()
    for _ in range(settings.steps):
        training.step(train.images, train.labels)
    training.finish()
    return model.eval()


def _objective(loss: Loss, settings: ToySettings) -> Objective:
    if loss == "cross-entropy":
        return CrossEntropyLoss()
    hidden = dict.fromkeys(HIDDEN, GammaQuantile(0.9, batches=500))
    return LargeMarginLoss(("input", *HIDDEN), 2, {"input": settings.gamma, **hidden})


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger; it keeps nothing in between.

    Args:
        request: What was asked for. Seeds are networks of each loss, with data of their own, 5 by default; the networks
            are too small to share out, and nobody is told in between.
    """
    count = request.seeds_or(SEEDS)
    settings = ToySettings()
    found = [run_toy(loss, settings, seed) for seed in range(count) for loss in LOSSES]
    report = report_with({"dataset": NAME, "seeds": count, **dataclasses.asdict(settings)}, found, COMMAND)
    Card(report).save_folder(request.out)
    write_bytes(request.out / PICTURE, as_png(picture(report, LOSSES, CLASSES)))
    return write_ledger(report, LOSSES, PICTURE, request.out)


def run_toy(loss: Loss, settings: ToySettings, seed: int) -> RunFindings:
    """One network: its errors, exact distances of the training points to its boundary, and the picture.

    Distances are signed: below 0 for a point on the wrong side.
    """
    train = moons(settings.per_class, settings.noise, seed)
    test = moons(settings.test_per_class, settings.test_noise, derived_seed(seed, "test"))
    model = trained(loss, train, settings, seed)
    curve = boundary_points(_score_of(model), 0.0, 1.0, settings.resolution)
    wrong = _wrong(model, train)
    distances = distances_to(train.images.flatten(1), curve) if len(curve) else torch.full((len(train),), 1.5)
    distances = torch.where(wrong, -distances, distances)
    values = {
        "train_error": float(wrong.double().mean()),
        "test_error": float(_wrong(model, test).double().mean()),
        "smallest_distance": float(distances.min()),
        "median_distance": float(distances.median()),
    }
    where = (NAME, loss, seed)
    records = tuple(
        Record(*where, _measured(name, value, len(test if name == "test_error" else train)))
        for name, value in values.items()
    )
    return RunFindings(None, records, (ExhibitRecord(*where, _picture(train, curve)),))


def _measured(name: str, value: float, count: int) -> Measurement:
    if name.endswith("error"):
        return Measurement(NAME, name, value, "fraction", count, better="lower")
    return Measurement(NAME, name, value, "pixel units", count, better="higher")


def _score_of(model: Classifier):  # type: ignore[no-untyped-def]
    """The network's logit gap as a function of points in float64."""
    network = toy_classifier(0).double()
    network.load_state_dict(model.state_dict())
    network.eval()

    @torch.no_grad()
    def score(points: Tensor) -> Tensor:
        logits = network(points[:, :, None, None])
        return logits[:, 1] - logits[:, 0]

    return score


@torch.no_grad()
def _wrong(model: Classifier, data: ImageSet) -> Tensor:
    return model(data.images).argmax(dim=1) != data.labels


def _picture(train: ImageSet, curve: Tensor) -> Exhibit:
    points = train.images.flatten(1)
    shown = curve[:: max(1, len(curve) // CURVE_POINTS)]
    columns = {
        "x": [*points[:, 0].tolist(), *shown[:, 0].tolist()],
        "y": [*points[:, 1].tolist(), *shown[:, 1].tolist()],
        "label": [*(train.classes[k] for k in train.labels), *["boundary"] * len(shown)],
    }
    return Exhibit(
        NAME, "boundary", "scatter", columns, "Training points and the boundary between the classes."
    )
