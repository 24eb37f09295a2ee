"""Where the networks of the fine-tuning study come from, and what they are tuned on."""

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clearance._files import write_bytes
from clearance.data import ImageSet
from clearance.data.folder import open_folder
from clearance.data.preprocessing import Preprocessing
from clearance.experiments.build import build_data
from clearance.experiments.method import Method
from clearance.experiments.papers import paper_recipe
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import NoDataError
from clearance.experiments.reproductions.sato_2019.fine_tuning_ledger import FOCA, SAME_COST, SAME_STEPS

PHOTOGRAPHS = "sign-language-digits"
SIDE = 28  # of MNIST's images
# Epochs of cross-entropy that take as long as 10 of FOCA and its final head, measured on one core; the
# ledger says what it came to.
EPOCHS_ON_DIGITS = {SAME_COST: 25, SAME_STEPS: 10, FOCA: 10}
EPOCHS_ON_PHOTOGRAPHS = {SAME_COST: 25, SAME_STEPS: 10, FOCA: 10}


@dataclasses.dataclass(frozen=True)
class Task:
    """Where the networks come from, and what they are tuned on.

    Args:
        start: The recipe of plain training.
        target: The recipe of tuning, without a model and methods.
        foca: FOCA's settings.
        epochs: Of each way to go on.
        shared: Whether the target's training images are those of the start, so that a choice on a split of
            them needs networks that have not seen the split either.
    """

    start: Recipe
    target: Recipe
    foca: Method
    epochs: Mapping[str, int]
    shared: bool


def task(root: str | None, out: Path) -> Task:
    """Digits to digits, or with a root MNIST to the photographs ``ROOT/sign-language-digits``.

    The photographs are kept in `out` as grey images of MNIST's size, which every run reads.

    Raises:
        NoDataError: If MNIST or the photographs are not under `root`.
    """
    known = paper_recipe("sato-2019", "digits" if root is None else "mnist", root)
    start = dataclasses.replace(known, methods={"plain": known.methods["plain"]}, audits=("accuracy",))
    if root is None:
        return Task(start, start, known.methods["foca"], EPOCHS_ON_DIGITS, shared=True)
    try:
        build_data(start)
        pictures = open_folder(Path(root).expanduser() / PHOTOGRAPHS, Preprocessing(image_size=SIDE))
    except FileNotFoundError as error:
        raise NoDataError(
            f"`root` must hold mnist and {PHOTOGRAPHS}, a folder of pictures for each class; {error}"
        ) from error
    target = dataclasses.replace(start, dataset=f"npz:{_kept(pictures, out)}", root=None)
    return Task(start, target, known.methods["foca"], EPOCHS_ON_PHOTOGRAPHS, shared=False)


def _kept(pictures: ImageSet, out: Path) -> Path:
    """The pictures in grey, as an archive that processes read."""
    grey = (pictures.images.mean(dim=1) * 255).round().numpy().astype(np.uint8)
    content = io.BytesIO()
    np.savez(content, images=grey, labels=pictures.labels.numpy(), classes=np.array(pictures.classes))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{pictures.name}.npz"
    write_bytes(path, content.getvalue())
    return path
