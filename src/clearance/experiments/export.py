"""What a deployed model needs from its audit: temperature, out-of-distribution threshold and names of classes."""

import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from clearance._files import write_bytes
from clearance.audits import Findings, OutOfDistribution, Subject
from clearance.audits.rejection import LEAST
from clearance.models import Classifier
from clearance.models.black_box import lacks
from clearance.models.cut import SummedHeads, TwoLogits

FEWEST_WRONG = 5  # images; with fewer a temperature is mostly chance
SETTINGS, FEATURES, READER = "deploy.json", "features.pt", "reader.py"


def export(subject: Subject, findings: list[Findings], folder: Path) -> str:
    """Write ``deploy.json``, ``features.pt`` and ``reader.py``, which reads both and needs torch alone.

    The temperature is that of the audit `calibration`, if at least 5 test images are wrong: from fewer it is mostly
    chance. The threshold keeps 95 % of the test images, as in the audit
    `out_of_distribution`; ``features.pt`` has the features of the training images that it compares with. Returns one
    line on what was written. The model has passed `check_exportable`.

    >>> import tempfile
    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> model = Classifier(nn.Flatten(), nn.Linear(64, 3))
    >>> subject = Subject(model, gaussian_images(per_class=30, seed=0), gaussian_images(per_class=30, seed=1))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     said = export(subject, [], Path(place))
    ...     sorted(file.name for file in Path(place).iterdir())
    ['deploy.json', 'features.pt', 'reader.py']
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = _of_model(subject)
    rows = (
        m for one in findings for m in one.measurements if (m.audit, m.name) == ("calibration", "temperature")
    )
    temperature = next(rows, None)
    said = ["names of classes"]
    wrong = int((subject.test_predictions != subject.test.labels).sum())
    if temperature is not None and wrong < FEWEST_WRONG:
        said.append(f"no temperature (of {len(subject.test)} images {wrong} are wrong: too few to tell it)")
    elif temperature is not None:
        found["temperature"] = temperature.value
        said.append(f"temperature {temperature.value:.3g}")
    if len(subject.test) >= 2 * LEAST and (head := found["head"]) is not None:
        audit = OutOfDistribution()
        known, threshold = audit.fitted(subject)
        if math.isfinite(threshold):  # rounded class by class, half of few images may be too few for one
            cosine = 1 + threshold  # of a score that is minus half a squared distance on the unit sphere
            found |= {"neighbours": min(audit.neighbours, len(known)), "threshold": cosine}
            torch.save(known.float().cpu(), folder / FEATURES)
            said.append(f"threshold {cosine:.3g} (cosine to features at {head!r})")
    write_bytes(folder / SETTINGS, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())
    reader = resources.files("clearance.experiments").joinpath("deployed_reader.py").read_bytes()
    write_bytes(folder / READER, reader)
    return f"exported: {', '.join(said)}; read them with {READER}, which needs torch alone"


def check_exportable(model: Classifier) -> None:
    """Raise for a model whose outputs ``reader.py`` would misread.

    Raises:
        ValueError: If the model is a black box, or has one logit for two classes.
    """
    if lacks(model) or any(isinstance(part, TwoLogits) for part in model.head.modules()):
        got = "a black box" if lacks(model) else "a module with one logit for two classes"
        raise ValueError(
            f"`export` must be used with a module that gives one logit per class; got {got}. Audit it without `export`."
        )


def _of_model(subject: Subject) -> dict[str, Any]:
    """Normalisation, head and the name of each output, as the module has them that was wrapped."""
    model = subject.model
    outside = model.cut is not None
    with torch.no_grad():
        outputs = model(subject.test.batch(torch.tensor([0]))[0]).shape[1]
    names = [f"output {k}" for k in range(outputs)]
    for at, name in zip(model.order or range(outputs), subject.test.classes, strict=False):
        names[at] = name
    return {
        "schema": 3,
        "classes": names,
        "head": _head_of(model),
        "mean": model.mean.flatten().tolist() if outside else [0.0],
        "std": model.std.flatten().tolist() if outside else [1.0],
    }


def _head_of(model: Classifier) -> str | None:
    """The name of the submodule whose input are the features; None where no such input is one vector."""
    if any(isinstance(part, SummedHeads) and part.widths for part in model.head.modules()):
        return None
    return "head" if model.cut is None else model.cut or None
