"""Starting from a trained network: ``run:PATH``, a finished run's directory, in the place of a model's name."""

import json
from pathlib import Path

from clearance.data import ImageSet
from clearance.experiments.method import Method
from clearance.models import Classifier

START = "run:"
FACTS = "model.json"
FORM = (
    "hidden",
    "dropout",
    "norm",
    "mixture",
    "priors",
    "features",
)  # what of a method decides the network's form


def started_from(model: str) -> Path | None:
    """The directory that a model's name points to; None where it is an ordinary name.

    >>> started_from("small-cnn") is None, started_from("run:runs/plain").name
    (True, 'plain')
    """
    return Path(model.removeprefix(START)) if model.startswith(START) else None


def extractor_name(model: str) -> str:
    """The extractor's name in the catalogue, also of a network that starts from a trained one.

    Raises:
        FileNotFoundError: If there is no such run.

    >>> extractor_name("small-cnn")
    'small-cnn'
    """
    folder = started_from(model)
    return model if folder is None else str(json.loads((folder / FACTS).read_text("utf-8"))["model"])


def trained_model(folder: Path, method: Method, train: ImageSet) -> Classifier:
    """The network of a finished run, to be trained on; it keeps the normalisation that it was trained with.

    Args:
        folder: The run's directory.
        method: How it is trained on: of the same form.
        train: The images that it is trained on: as many classes and channels.

    Raises:
        FileNotFoundError: If `folder` holds no such run.
        ValueError: If the run is not finished, or method or images do not fit the network.
    """
    from clearance.experiments.saved import load_run  # it stands on build, which calls this

    found = load_run(folder)
    theirs = found.recipe.methods[found.method]
    for name in FORM:
        if getattr(theirs, name) != getattr(method, name):
            raise ValueError(
                f"`{name}` must be {getattr(theirs, name)} as in the network that training starts from; got "
                f"{getattr(method, name)}. Change the method, or start from another run."
            )
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    fits = (tuple(facts["shape"]), len(facts["classes"]))
    if fits != (train.shape, train.class_count):
        raise ValueError(
            f"images must be of shape {fits[0]} in {fits[1]} classes for the network that training starts from; "
            f"got {train.shape} in {train.class_count}. Resize them, or start from another run."
        )
    return found.model.train()
