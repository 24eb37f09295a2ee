"""What its owner says of a model that was trained elsewhere: place, weights, preprocessing and images."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance.data import Preprocessing


@dataclass(frozen=True)
class OutsideModel:
    """What there is to say about a model that was trained elsewhere.

    Args:
        place: ``package.module:name`` or ``path/to/file.py:name``; see `clearance.models.factory`.
        train: Images that it was trained on: ``"folder:PATH"``, ``"npz:PATH"`` or the name of a dataset, whose training
            images are taken.
        test: Held-out images of the same classes, likewise; of a named dataset its test images.
        weights: A checkpoint; None leaves what the place gives.
        entry: The entry of the checkpoint; see :func:`clearance.models.load_weights`.
        head: Name of the submodule that is the head; None takes the last linear layer.
        mean: What the module does not do itself: subtracted from images in [0, 1], one value or one a channel.
        std: Divides them after that.
        image_size: Side of the square that the model takes, in pixels.
        crop: The share of the short side that is kept, in (0, 1].
        expect_accuracy: What its owner says, in (0, 1]: less than that stops everything.
        unknown: Images of things that the model never saw: ``"folder:PATH"``, flat or not, ``"npz:PATH"``, or the name
            of a dataset.
        root: The folder that holds the files of a named dataset.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` ...
        cache: Folder for decoded pictures and features.

    What is not given of mean, std, sizes and crop is taken from the model's `pretrained_cfg`, where it has one.
    """

    place: str
    train: str
    test: str
    weights: Path | None = None
    entry: str | None = None
    head: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    image_size: int | None = None
    crop: float | None = None
    expect_accuracy: float | None = None
    unknown: str | None = None
    root: str | None = None
    device: str = "auto"
    cache: Path | None = None

    @property
    def name(self) -> str:
        """The place without folders of this machine."""
        where, _, name = self.place.rpartition(":")
        return f"{Path(where).name if where.endswith('.py') else where}:{name}"

    def settings(self, how: Preprocessing) -> dict[str, Any]:
        """What the report keeps of all this: no folder of this machine.

        Args:
            how: The preprocessing that came of it.
        """
        told: dict[str, Any] = {
            "model": self.name,
            "weights": None if self.weights is None else self.weights.name,
            "head": self.head,
            "preprocessing": dataclasses.asdict(how),
        }
        if self.expect_accuracy is not None:
            told["expected_accuracy"] = self.expect_accuracy
        return told
