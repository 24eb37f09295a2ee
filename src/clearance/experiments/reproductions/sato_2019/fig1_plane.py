"""A panel of Fig. 1 as plain numbers: the features in the plane, and the mean output of 256 weak heads over it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.experiments.reproductions.sato_2019.fig1_measures import AUDIT, HEADS, random_pairs
from clearance.experiments.reproductions.sato_2019.fig1_runs import ToyRun
from clearance.experiments.reproductions.sato_2019.fig1_toy import (
    VARIANTS,
    WEAK_MLP,
    ToySettings,
    toy_classifier,
)
from clearance.geometry import class_scatter
from clearance.heads import HeadStack, PairHeads
from clearance.heads.scale import feature_unit
from clearance.models.features import extract_features
from clearance.vocabulary import Exhibit

SIDE = 81  # points of the grid along a side


@dataclass(frozen=True)
class Frame:
    """Coordinates in which all panels can be compared: turned and scaled, so that the class means are at ±1/2.

    Args:
        middle: Halfway between the class means, in the features' own coordinates.
        axes: Rows: the step from one mean to the other, and the same step turned by a quarter.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 4.0]])
    >>> frame = Frame.of(features, torch.tensor([0, 1]))
    >>> frame.coordinates(features)
    tensor([[-0.5000,  0.0000],
            [ 0.5000,  0.0000]], dtype=torch.float64)
    """

    middle: Tensor
    axes: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> "Frame":
        """The frame of two classes in the plane, whose means must differ."""
        negative, positive = class_scatter(features, labels, 2).means
        step = positive - negative
        return cls(
            (negative + positive) / 2, torch.stack([step, step.flip(0) * step.new_tensor([-1.0, 1.0])])
        )

    def coordinates(self, features: Tensor) -> Tensor:
        """Features (N, 2) in this frame."""
        return (features.double() - self.middle) @ self.axes.T / self.axes[0].square().sum()

    def features(self, coordinates: Tensor) -> Tensor:
        """The way back."""
        return coordinates @ self.axes + self.middle


def weak_heads(run: ToyRun, settings: ToySettings, count: int = HEADS) -> HeadStack:
    """Heads as FOCA draws them for this kind of head, each on one random pair of the trained panel's points.

    Joint training meets no such heads; they are drawn on its features in the same way.

    Args:
        run: The panel.
        settings: Of the toy.
        count: How many.
    """
    model, head = run.result.model, VARIANTS[run.variant].head
    features, pairs = extract_features(model, run.data), random_pairs(run.data.labels, count, run.seed)
    first = feature_unit(extract_features(toy_classifier(head, run.seed), run.data))  # as FOCA's first draw
    drawer = PairHeads(settings.penalty) if head == "linear" else WEAK_MLP
    labels = run.data.labels[pairs]
    return drawer.draw(model.head, features[pairs], labels, generator(run.seed, "toy_heads"), first).intact()


@torch.no_grad()
def panel(run: ToyRun, settings: ToySettings, reach: float) -> tuple[Exhibit, Exhibit]:
    """Points and background of a panel.

    Args:
        run: The panel.
        settings: Of the toy.
        reach: Half the side of the square that is shown, in distances between the class means.
    """
    features, labels = extract_features(run.result.model, run.data).double(), run.data.labels
    frame = Frame.of(features, labels)
    x, y = frame.coordinates(features).T.tolist()
    ticks = torch.linspace(-reach, reach, SIDE, dtype=torch.float64)
    grid = torch.cartesian_prod(ticks, ticks)
    places = frame.features(grid).float()
    weak = signed(weak_heads(run, settings)(places)).mean(dim=0)
    own = signed(run.result.model.head(places))
    names = [run.data.classes[label] for label in labels.tolist()]
    columns = {"x": grid[:, 0].tolist(), "y": grid[:, 1].tolist(), "mean": weak.tolist(), "own": own.tolist()}
    return (
        Exhibit(AUDIT, "features", "scatter", {"x": x, "y": y, "label": names}, "Features of all points."),
        Exhibit(AUDIT, "outputs", "heatmap", columns, f"Mean output of {HEADS} weak heads, and own output."),
    )


def reach_of(run: ToyRun) -> float:
    """The largest coordinate of a panel's features, in distances between the class means."""
    features = extract_features(run.result.model, run.data).double()
    return float(Frame.of(features, run.data.labels).coordinates(features).abs().max())


def signed(logits: Tensor) -> Tensor:
    """The paper's one output s, with targets -1 and +1, of logits (..., 2)."""
    return logits[..., 1] - logits[..., 0]
