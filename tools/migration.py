"""Records what the library computes, exactly, and compares two records: nothing may change by accident.

    python tools/migration.py record FILE [--only losses,svm]
    python tools/migration.py compare FILE [FILE2] [--only ...]

`record` writes digests and values of every part in PARTS into FILE, beside other parts that it holds. `compare` holds
the record FILE against FILE2, or against the code that is imported now, says what differs, and exits with 1 where
anything does. Records are comparable on one machine with one torch alone. Inputs are made here, and names of the
library are looked up under all that they ever had, so that the tool outlives a renaming; it goes when that is over.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import io
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

for variable in (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
):  # before NumPy and torch begin
    os.environ[variable] = "1"

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
KEPT = 12  # values of a tensor that a record keeps beside its digest
SHOWN = 8  # entries that a comparison shows of each part

# Old name -> new name. Applied to both records, so it may run ahead of the code.
RENAMED: dict[str, dict[str, str]] = {
    "audit": {
        "unknowns": "out_of_distribution",
        "refit": "linear_probe",
        "flip_size": "minimal_perturbation",
        "class_pairs": "confusions",
        "sure_mistakes": "high_confidence_adversarials",
    },
    "name": {},
    "context": {},
    "value": {},  # values of contexts that are words
    "unit": {},
    "method": {},
    "column": {},  # of exhibits
    "word": {},  # in the key of any other entry: a term of a loss, a parameter with its dots, a run
}
# Measurements and exhibits whose last bits differ between runs of the same code, and what difference is allowed.
UNSTEADY_BITS = {"lda_eigenvalue": 1e-12, "lda": 1e-12}
# Keywords of constructors; a keyword that has moved into a dataclass is found there without help.
RENAMED_SETTINGS: dict[str, str] = {}
# Rooms that were renamed; every address below is tried in the first of these that exists.
ROOMS = {
    "clearance.losses": ("clearance.losses", "clearance.losses"),
    "clearance.training": ("clearance.training", "clearance.training"),
}


def first(*places: str) -> Any:
    """What the first of these addresses ("module:name" or "module") that exists holds."""
    tried = []
    for place in places:
        module, _, name = place.partition(":")
        for room in ROOMS.get(module, (module,)):
            try:
                found = importlib.import_module(room)
            except ModuleNotFoundError:
                tried.append(f"no {room}")
                continue
            if not name:
                return found
            if hasattr(found, name):
                return getattr(found, name)
            tried.append(f"no {name} in {room}")
    raise LookupError("; ".join(tried))


def made(kind: Any, /, *args: Any, **settings: Any) -> Any:
    """`kind(**settings)`; settings that the constructor no longer has go into the dataclass that holds them now."""
    known = inspect.signature(kind).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
        return kind(*args, **settings)
    direct: dict[str, Any] = {}
    grouped: dict[str, tuple[Any, dict[str, Any]]] = {}
    for old, value in settings.items():
        name = old if old in known else RENAMED_SETTINGS.get(old, old)
        if name in known:
            direct[name] = value
            continue
        place, group = _group_of(kind, name)
        grouped.setdefault(place, (group, {}))[1][name] = value
    return kind(*args, **direct, **{place: group(**inner) for place, (group, inner) in grouped.items()})


def _group_of(kind: Any, setting: str) -> tuple[str, Any]:
    """The parameter of `kind` whose dataclass has this setting, and the dataclass."""
    hints = typing.get_type_hints(vars(kind).get("__init__", kind) if isinstance(kind, type) else kind)
    for place, hint in hints.items():
        for one in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(one) and setting in {each.name for each in dataclasses.fields(one)}:
                return place, one
    raise LookupError(f"{kind.__name__} has no setting {setting!r}; add it to RENAMED_SETTINGS")


# ---------------------------------------------------------------------------------------------- exact values


def exact(value: Any) -> Any:
    """A value as JSON that loses no bit."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.generic):
        return exact(value.item())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Tensor):
        return exact(value.detach().cpu().contiguous().numpy())
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        return {str(key): exact(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [exact(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: exact(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return f"{type(value).__name__}"


def _array(values: np.ndarray) -> dict[str, Any]:
    flat = np.ascontiguousarray(values)
    found = {
        "shape": list(flat.shape),
        "dtype": str(flat.dtype),
        "sha256": hashlib.sha256(flat.tobytes()).hexdigest(),
    }
    if flat.dtype.kind in "fiub" and flat.size:
        rows = np.unique(np.linspace(0, flat.size - 1, min(KEPT, flat.size)).astype(int))
        found["values"] = [float(one).hex() for one in flat.reshape(-1)[rows]]
    return found


def tried(cases: Mapping[str, Callable[[], Mapping[str, Any]]]) -> dict[str, Any]:
    """What every case gives, as "case: entry"; a case that fails is an entry itself."""
    found: dict[str, Any] = {}
    for name, case in cases.items():
        try:
            entries = case()
        except Exception as error:  # the other cases go on
            entries = {"failed": f"{type(error).__name__}: {error}"}
        found |= {f"{name}: {key}": exact(value) for key, value in entries.items()}
    return found


def draws(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def filled(module: Any, seed: int) -> Any:
    """The module with parameters drawn by their sorted names."""
    with torch.no_grad():
        for k, (_, parameter) in enumerate(sorted(module.named_parameters())):
            parameter.copy_(draws(*parameter.shape, seed=1000 * seed + k) / 2)
    return module


# ---------------------------------------------------------------------------------------------------- losses

CLASSES, FEATURES, INPUTS, BATCH = 4, 5, 6, 7
LABELS = torch.tensor([0, 1, 2, 3, 3, 0, 1])


def loss_class(name: str) -> Any:
    return first(f"clearance.losses:{name}")


def loss_of(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: made(loss_class(name), **settings)


def mixture(covariance: str = "class_diagonal") -> nn.Module:
    return made(
        first("clearance.heads:GaussianMixture"), FEATURES, CLASSES, covariance=covariance, priors="learned"
    )


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


class FlatWorld(nn.Module):
    """Input, a hidden layer, features, logits; smooth."""

    def __init__(self, head: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, 8), nn.Linear(8, FEATURES)
        self.head = head()

    def outputs(self, images: Tensor, layers: tuple[str, ...]) -> Any:
        hidden = torch.tanh(self.first(images))
        features = torch.tanh(self.second(hidden))
        known = {"input": images, "hidden": hidden}
        kind = first("clearance:Outputs")
        return kind(features, self.head(features), self.head, {name: known[name] for name in layers})

    def images(self, seed: int) -> Tensor:
        return draws(BATCH, INPUTS, seed=seed).sigmoid()


class ImageWorld(nn.Module):
    """A small convolutional Classifier of the library."""

    def __init__(self, channels: int, head: Callable[[], nn.Module] = linear) -> None:
        super().__init__()
        self.channels = channels
        body = nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, FEATURES),
        )
        self.net = first("clearance:Classifier")(body, head())

    def outputs(self, images: Tensor, layers: tuple[str, ...]) -> Any:
        return self.net.outputs(images, layers)

    def images(self, seed: int) -> Tensor:
        return draws(BATCH, self.channels, 8, 8, seed=seed).sigmoid()


def loss_case(
    make: Callable[[], nn.Module],
    world: Callable[[], Any] = lambda: FlatWorld(linear),
    dtype: torch.dtype = torch.float64,
) -> Callable[[], dict[str, Any]]:
    """Values and all gradients in six steps, with what a loss does after each."""

    def run() -> dict[str, Any]:
        torch.manual_seed(0)
        loss: Any = make()
        around = filled(world(), seed=1).to(dtype)
        found: dict[str, Any] = {}
        for step in range(6):
            images = around.images(seed=step).to(dtype).requires_grad_()
            outputs = around.outputs(images, loss.layers)
            for module in (loss, around):
                module.zero_grad()
            terms = loss(outputs, LABELS)
            terms.total.backward()
            found |= {f"step {step} term {n}": v for n, v in terms.terms.items()}
            found[f"step {step} total"] = terms.total
            for name, one in (("input", images), *around.named_parameters(), *loss.named_parameters()):
                found[f"step {step} gradient {name}"] = one.grad
            with torch.no_grad():
                loss.after_step(outputs, LABELS)
        return found | {f"state {name}": one for name, one in loss.state_dict().items()}

    return run


def losses() -> dict[str, Any]:
    """Every loss on fixed tensors in float64; a few on images, and in float32 too."""
    step_up, decay = loss_class("StepUp"), loss_class("InverseDecay")
    quantile = loss_class("GammaQuantile")
    three = ("hidden", "features", "logits")
    flat = {
        "cross-entropy": loss_of("CrossEntropyLoss"),
        "squared error": loss_of("SquaredErrorLoss"),
        "hinge": loss_of("HingeLoss"),
        "hinge, sum": loss_of("HingeLoss", margin=0.5, form="sum"),
        "center": loss_of("CenterLoss", in_features=FEATURES, classes=CLASSES),
        "center, gradient": loss_of("CenterLoss", in_features=FEATURES, classes=CLASSES, update="gradient"),
        "large-margin softmax": loss_of(
            "LargeMarginSoftmaxLoss", multiplier=4, softmax_weight=decay(3.0, 0.1, 2.0)
        ),
        "large-margin softmax, 2": loss_of("LargeMarginSoftmaxLoss", multiplier=2, softmax_weight=0.5),
        "contrastive": loss_of("ContrastiveLoss"),
        "triplet": loss_of("TripletLoss"),
        "triplet, all": loss_of("TripletLoss", margin=1.0, mining="all"),
    }
    margins: dict[str, dict[str, Any]] = {
        "": {"layers": ("input",)},
        "every second step": {
            "layers": three, "gamma": 2.0, "top_k": 2, "denominator": "full", "every": 2, "aggregate": "max",
        },
        "all rivals, sum": {"layers": ("input", *three), "gamma": 2.0, "top_k": None, "aggregate": "sum"},
        "mean": {"layers": three, "gamma": 2.0, "top_k": 3, "aggregate": "mean"},
        "smooth": {"layers": three, "gamma": 2.0, "top_k": None, "aggregate": "smooth_max", "denominator": "full"},
        "inf": {"layers": ("input", "hidden"), "norm": math.inf, "gamma": 1.0, "top_k": 2},
        "1": {"layers": ("input", "hidden"), "norm": 1.0, "gamma": 3.0},
        "3": {"layers": ("input", "hidden"), "norm": 3.0, "gamma": 3.0, "denominator": "full"},
        "softmax": {"layers": ("input", *three), "gamma": 50.0, "score": "softmax", "top_k": 2},
        "clip": {"layers": ("input", *three), "gamma": 1.0, "lower_clip": 2.0, "eps": 1e-3},
        "element": {"layers": ("input", "hidden"), "unit": "element"},
        "spread": {"layers": ("hidden", "features"), "unit": "spread", "gamma": 0.5},
        "quantile": {"layers": ("hidden", "logits"), "gamma": quantile(0.9, 2)},
        "gammas": {
            "layers": ("input", "hidden"), "gamma": {"input": 0.5, "hidden": 2.0},
            "layer_weights": {"input": 2.0, "hidden": 0.1}, "cross_entropy_weight": 0.3,
        },
        "shifted": {"layers": three, "gamma": 2.0, "shifted": True},
        "sequential": {"layers": ("input", "hidden"), "gamma": 2.0, "top_k": 3, "sweeps": "sequential"},
        "batched": {"layers": ("input", "hidden"), "gamma": 2.0, "top_k": 3, "sweeps": "batched"},
        "alone": {"layers": ("hidden",), "gamma": 2.0, "cross_entropy_weight": 0.0},
    }  # fmt: skip
    large = {
        f"large margin, {name}": loss_of("LargeMarginLoss", **settings) for name, settings in margins.items()
    }
    cases = {name: loss_case(make) for name, make in {**flat, **large}.items()}
    for covariance in ("identity", "class_diagonal", "full"):
        cases[f"large margin of a mixture, {covariance}"] = loss_case(
            loss_of("LargeMarginLoss", layers=("input", "hidden", "features"), gamma=2.0, top_k=2),
            lambda c=covariance: FlatWorld(lambda: mixture(c)),  # type: ignore[misc]
        )
    for channels in (1, 3):
        for top_k in (1, 3):
            for dtype in (torch.float64, torch.float32):
                cases[f"large margin on {channels} channels, {top_k}, {dtype}"] = loss_case(
                    loss_of("LargeMarginLoss", layers=("input", "features"), gamma=1.0, top_k=top_k),
                    lambda c=channels: ImageWorld(c),  # type: ignore[misc]
                    dtype,
                )
    mixed = {
        "gaussian mixture": ("class_diagonal", {}),
        "gaussian mixture, identity": ("identity", {}),
        "gaussian mixture, scalar": ("scalar", {}),
        "gaussian mixture, diagonal": ("diagonal", {}),
        "gaussian mixture, class_scalar": ("class_scalar", {"alpha": 0.3, "likelihood_weight": 0.0}),
        "gaussian mixture, full": ("full", {"alpha": step_up(0.1, 2.0, 2, 0.3)}),
    }
    for name, (covariance, settings) in mixed.items():
        cases[name] = loss_case(
            loss_of("GaussianMixtureLoss", **settings),
            lambda c=covariance: FlatWorld(lambda: mixture(c)),  # type: ignore[misc]
        )
    cases["sum"] = loss_case(_sum_of_losses, lambda: FlatWorld(mixture))
    return tried(cases)


def _sum_of_losses() -> nn.Module:
    parts = {
        "mixture": loss_of("GaussianMixtureLoss")(),
        "margin": loss_of(
            "LargeMarginLoss", layers=("hidden",), gamma=2.0, denominator="full", cross_entropy_weight=0.0
        )(),
        "center": loss_of("CenterLoss", in_features=FEATURES, classes=CLASSES, cross_entropy_weight=0.0)(),
    }
    found: nn.Module = loss_class("SumLoss")(parts, {"margin": 0.5})
    return found


def heads() -> dict[str, Any]:
    """GaussianMixture heads of every covariance: what they say and its gradients, in both precisions."""
    kinds = ("identity", "scalar", "class_scalar", "diagonal", "class_diagonal", "full")
    return tried(
        {
            f"{kind}, {dtype}": lambda kind=kind, dtype=dtype: _mixture_head(kind, dtype)  # type: ignore[misc]
            for kind in kinds
            for dtype in (torch.float64, torch.float32)
        }
    )


def _mixture_head(kind: str, dtype: torch.dtype) -> dict[str, Any]:
    torch.manual_seed(0)
    head = filled(mixture(kind), seed=2).to(dtype)
    found: dict[str, Any] = {}
    asked = {
        "logits": head,
        "log_prob": head.log_prob,
        "log_density": head.log_density,
        "posterior": head.posterior,
        "own_half_distance": lambda x: head.own_half_distance(x, LABELS),
    }
    for name, ask in asked.items():
        features = draws(BATCH, FEATURES, seed=3).to(dtype).requires_grad_()
        head.zero_grad()
        given = ask(features)
        (given * draws(*given.shape, seed=4).to(dtype)).sum().backward()
        found[name] = given
        found[f"{name} gradient features"] = features.grad
        found |= {f"{name} gradient {n}": one.grad for n, one in head.named_parameters()}
    for name in ("log_prior", "half_log_determinant", "log_variance"):
        found[name] = getattr(head, name)()
    points, labels = draws(60, FEATURES, seed=5).to(dtype), torch.arange(60) % CLASSES
    head.fit_statistics(points + labels[:, None], labels, priors=True)
    return found | {f"fitted {name}": one for name, one in head.state_dict().items()}


# --------------------------------------------------------------------------------------------------- attacks


def digit_images() -> tuple[Tensor, Tensor]:
    digits = load_digits()
    return torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)


def digit_net(seed: int) -> nn.Module:
    """A small convolutional network on digits, trained here."""
    images, labels = digit_images()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(),
        nn.Linear(32, 10),
    )  # fmt: skip
    filled(net, seed=10 + seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(150):
        rows = torch.arange(64 * step, 64 * step + 64) % 1200
        optimizer.zero_grad()
        F.cross_entropy(net(images[rows]), labels[rows]).backward()
        optimizer.step()
    return net.eval().requires_grad_(False)


def attacks() -> dict[str, Any]:
    """Images of every attack on a fixed network, 40 digits of which two have a wrong label."""
    nets = digit_net(0), digit_net(1)
    images, labels = digit_images()
    images, labels = images[1300:1340], labels[1300:1340].clone()
    labels[:2] = (labels[:2] + 1) % 10
    found = {"the network itself: logits": exact(nets[0](images))}

    def case(attack: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
        def run() -> dict[str, Any]:
            torch.manual_seed(0)
            hit = attack()(nets[0], images, labels)
            return {"images": hit.images, "success": hit.success, "distance": hit.distance}

        return run

    def of(name: str, **settings: Any) -> Callable[[], Any]:
        place = {"DeepFool": "deep_fool", "MinimumNorm": "minimum_norm", "SquareSearch": "square"}.get(
            name, "attack"
        )
        return lambda: made(
            first(f"clearance.attacks:{name}", f"clearance.attacks.{place}:{name}"), **settings
        )

    asked: dict[str, Callable[[], Any]] = {}
    for norm, epsilon, wide in ((math.inf, 0.12, 0.12), (2.0, 0.6, 1.2), (1.0, 2.5, 4.0)):
        ball = {"epsilon": epsilon, "norm": norm}
        asked |= {
            f"FGSM {norm:g}": of("FGSM", **ball, loss="logit_margin"),
            f"IFGSM {norm:g}": of("IFGSM", **ball, loss="dlr", steps=4),
            f"PGD {norm:g}": of("PGD", **ball, steps=5, restarts=3, loss="scaled_cross_entropy"),
            f"square {norm:g}": of("SquareSearch", epsilon=wide, norm=norm, queries=20),
            f"DeepFool {norm:g}": of("DeepFool", norm=norm, steps=6),
            f"minimum norm {norm:g}": of("MinimumNorm", norm=norm, steps=8),
            f"targeted ascent {norm:g}": of("TargetedAscent", confidence=0.9, step=0.1, steps=12, norm=norm),
        }
    ball = {"epsilon": 0.12, "norm": math.inf}
    asked |= {
        "PGD at rivals": of("PGD", **ball, steps=4, restarts=2, loss="dlr", targets=2),
        "FGSM as published": of("FGSM", **ball),
        "IFGSM as published": of("IFGSM", **ball, steps=4),
        "transferred": lambda: first("clearance.attacks:transferred")(nets[1], of("PGD", **ball, steps=4)()),
        "foreign": lambda: first("clearance.attacks:as_attack")(_signs, 0.15),
        "straight through": lambda: _through_rounding(of("PGD", **ball, steps=4)()),
    }
    return found | tried({name: case(attack) for name, attack in asked.items()})


def _signs(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
    leaf = images.clone().requires_grad_()
    F.cross_entropy(model(leaf), labels, reduction="sum").backward()
    assert leaf.grad is not None
    return (leaf + 0.15 * leaf.grad.sign()).detach()


def _through_rounding(attack: Any) -> Callable[..., Any]:
    def run(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Any:
        rounded = first("clearance.attacks:straight_through")(lambda x: model((x * 16).round() / 16))
        return attack(rounded, images, labels)

    return run


# ------------------------------------------------------------------------------------------------------- svm


def svm() -> dict[str, Any]:
    """Eight hinge machines on two digits, and four of logistic regression on a cloud."""
    path = first("clearance.linear:svm_path", "clearance.linear.svm_path:svm_path")
    digits = load_digits()
    rows = np.isin(digits.target, (3, 8))
    x, y = digits.data[rows][:200] / 16, np.where(digits.target[rows][:200] == 3, -1, 1)
    cloud = draws(60, 5, seed=6).numpy()
    sides = np.where(cloud[:, 0] + 0.3 * cloud[:, 1] ** 2 > 0.2, 1, -1)

    def case(*args: Any, **settings: Any) -> Callable[[], dict[str, Any]]:
        return lambda: {
            f"{fit.lam:g} {name}": getattr(fit, name)
            for fit in path(*args, **settings)
            for name in ("w", "b", "objective", "gap", "risk")
        }

    return tried(
        {
            "hinge": case(x, y, np.logspace(1, -6, 8)),
            "softplus": case(cloud, sides, [1.0, 1e-1, 1e-2, 1e-3], loss="softplus"),
        }
    )


# ----------------------------------------------------------------------------------------- records and audits


def measured(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A measurement of a report as one entry; its key says what was measured."""
    if row.get("unit") in UNSTEADY:
        return {}
    keys = ("dataset", "method", "seed", "audit", "name", "context")
    key = json.dumps({key: row.get(key) for key in keys}, sort_keys=True)
    values = {name: row.get(name) for name in ("value", "n", "spread", "low", "high", "unit", "better")}
    return {f"{prefix}measurement {key}": exact(values)}


def shown(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """An exhibit of a report, its columns by digest."""
    keys = ("dataset", "method", "seed", "audit", "name", "context", "kind")
    key = json.dumps({key: row.get(key) for key in keys}, sort_keys=True)
    columns = {name: _column(column) for name, column in row["columns"].items()}
    return {f"{prefix}exhibit {key}": columns}


def _column(values: Any) -> Any:
    with contextlib.suppress(ValueError, TypeError):
        array = np.asarray(values, dtype=np.float64)
        return _array(array)
    text = json.dumps(values, sort_keys=True, default=str)
    return {"shape": [len(values)], "dtype": "text", "sha256": hashlib.sha256(text.encode()).hexdigest()}


def report_entries(report: Any, prefix: str = "") -> dict[str, Any]:
    """All measurements and exhibits of a Report."""
    found: dict[str, Any] = {}
    for record in report.records:
        found |= measured(record.to_json(), prefix)
    for record in report.exhibits:
        found |= shown(record.to_json(), prefix)
    return found


UNSTEADY = {"seconds", "MiB", "images/s"}  # units of what differs from run to run
HASHED = re.compile(r"-[0-9a-f]{8}$")  # what ends the name of a run's folder: the fingerprint of its recipe


def weights_below(folder: Path) -> dict[str, Any]:
    """Every tensor of every finished run below a folder, by the run's name without its fingerprint."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("model.safetensors")):
        run = HASHED.sub("", path.parent.name)
        found |= {f"weights {run}: {name}": exact(one) for name, one in sorted(load_file(path).items())}
    if not found:
        raise LookupError(
            f"no model.safetensors below the runs: {sorted(p.name for p in folder.rglob('*'))[:20]}"
        )
    return found


def compare() -> dict[str, Any]:
    """`compare` on digits: four methods, two seeds, three epochs; weights, measurements, exhibits."""
    library = first("clearance")
    train, test = (library.load_dataset("digits", split=split) for split in ("train", "test"))
    with tempfile.TemporaryDirectory() as folder:
        methods = ["plain", "foca", "large-margin", "lgm"]
        card = library.compare(methods, train, test, seeds=2, epochs=3, directory=folder)
        return weights_below(Path(folder)) | report_entries(card.report)


def audits() -> dict[str, Any]:
    """Every audit of one fixed network on digits, on few images."""
    library = first("clearance")
    parts = list(digit_net(0).requires_grad_(True).children())
    model = library.Classifier(nn.Sequential(*parts[:-1]), parts[-1]).eval()
    train, test = (library.load_dataset("digits", split=split) for split in ("train", "test"))
    others = draws(60, 1, 8, 8, seed=7).sigmoid().float()
    card = library.audit(model, train=train, test=test, unknown=others, audits=["all"], images=30)
    return report_entries(card.report)


def pictures(folder: Path) -> Path:
    """Ten folders of fifteen pictures of several sizes, coloured by their class, three of them grey."""
    draw = np.random.default_rng(0)
    for label in range(10):
        (folder / str(label)).mkdir(parents=True)
        for k in range(15):
            rows, columns = 40 + 7 * (k % 3), 50 - 5 * (k % 4)
            pixels = draw.integers(0, 120, (rows, columns, 3))
            pixels[4 * label % rows : 4 * label % rows + 8, :, label % 3] += 100
            image = Image.fromarray(pixels.astype(np.uint8))
            (image.convert("L") if k == 5 and label < 3 else image).save(folder / str(label) / f"{k:02}.png")
    return folder


def run_python(words: list[str], folder: Path) -> None:
    """A Python process in a folder, on the library that is imported here and what lies beside it."""
    root = Path(first("clearance").__file__).resolve().parents[2]
    paths = [str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)[:200]} ended with {done.returncode}: {done.stderr[-1500:]}")


def folder_entries(out: Path, prefix: str) -> dict[str, Any]:
    """All measurements and exhibits that lie in a report's folder."""
    rows = json.loads((out / "report.json").read_text("utf-8"))
    found: dict[str, Any] = {}
    for row in rows["measurements"]:
        found |= measured(row, prefix)
    for name in rows["exhibits"]:
        found |= shown(json.loads((out / name).read_text("utf-8")), prefix)
    return found


def third_party() -> dict[str, Any]:
    """Audits of networks that the scripts in examples/third_party train, by the command line of the documents."""
    digits = "--train npz:work/train.npz --test npz:work/test.npz"
    script, photographs = "examples/third_party/plain_digits.py", "examples/third_party/photographs.py"
    photos = "--train folder:photos/train --test folder:photos/val --size 64 --mean 0.5 --std 0.5"
    models = {
        "inside": f"{script}:NormalisingNet --weights work/inside.pt {digits}",
        "outside": f"{script}:Net --weights work/outside.pt {digits} --mean 0.305 --std 0.376",
        "photographs": f"{photographs}:resnet --weights photos/best.pt {photos}",
    }
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "examples").symlink_to(ROOT / "examples")
        pictures(folder / "pictures")
        for how in ("inside", "outside"):
            run_python([script, "--normalise", how, "--out", "work", "--epochs", "5"], folder)
        run_python([photographs, "pictures", "--out", "photos", "--epochs", "2"], folder)
        for name, words in models.items():
            options = ["--out", f"out-{name}", "--cache", "cache"]
            try:
                run_python(["-m", "clearance", "audit", *words.split(), *options], folder)
                found |= folder_entries(folder / f"out-{name}", f"{name}: ")
            except Exception as error:  # the other models go on
                found[f"{name}: failed"] = str(error)
    return found


# The same study by the command line of today, and by that of papers beside the package; the last function that is
# named makes a recipe, of which the study then runs fewer steps.
STUDY = """
import dataclasses, importlib, importlib.util, sys
paper, study, seeds, recipe_maker, steps = {paper!r}, {study!r}, {seeds!r}, {maker!r}, {steps!r}
papers = importlib.util.find_spec("papers") is not None
room = "papers." if papers else "clearance.experiments.reproductions."
if recipe_maker:
    importlib.import_module(room + paper + "." + study)
    homes = [m for m in list(sys.modules.values()) if callable(getattr(m, recipe_maker, None))]
    if not homes:
        raise LookupError("nothing imported has " + recipe_maker)
    full = getattr(homes[0], recipe_maker)
    def small(*args, **kwargs):
        recipe = full(*args, **kwargs)
        return dataclasses.replace(recipe, steps=steps)
    for home in homes:
        setattr(home, recipe_maker, small)
words = ["--only", study, *(["--seeds", str(seeds)] if seeds else []), "--jobs", "1", "--out", "out"]
if papers:
    main = importlib.import_module("papers.__main__").main
    words = [paper, *words]
else:
    main = importlib.import_module("clearance.cli.__main__").main
    words = ["reproduce", paper.replace("_", "-"), *words]
sys.argv = ["study", *words]
try:
    main(words)
except SystemExit as ended:
    if ended.code:
        raise
"""


def study(
    paper: str, name: str, seeds: int | None = 1, maker: str = "", steps: int = 0
) -> Callable[[], dict[str, Any]]:
    """One study of a paper as a part of the record."""

    def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as place:
            code = STUDY.format(paper=paper, study=name, seeds=seeds, maker=maker, steps=steps)
            run_python(["-c", code], Path(place))
            out = Path(place, "out")
            found = weights_below(out) if (out / "runs").is_dir() else {}
            if (out / "report.json").is_file():
                found |= folder_entries(out, "")
            for path in sorted(out.glob("pairs/*.json")):
                found |= {
                    f"{path.stem} {key}": exact(one) for key, one in numbers_in(json.loads(path.read_text()))
                }
            for claim in json.loads((out / "ledger.json").read_text()).get("claims", []):
                found[f"claim {claim['id']}"] = claim["verdict"]
            return found

    return run


def numbers_in(tree: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number of a tree of JSON by its place; a list of numbers is one array."""
    if isinstance(tree, Mapping):
        for key, inner in tree.items():
            if not key.endswith("seconds"):
                yield from numbers_in(inner, f"{place}.{key}")
    elif isinstance(tree, list) and all(isinstance(one, int | float) for one in tree):
        yield place, np.asarray(tree, dtype=np.float64)
    elif isinstance(tree, list):
        for k, inner in enumerate(tree):
            yield from numbers_in(inner, f"{place}.{k}")
    elif isinstance(tree, int | float):
        yield place, float(tree)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "losses": losses,
    "heads": heads,
    "attacks": attacks,
    "svm": svm,
    "compare": compare,
    "audits": audits,
    "third-party": third_party,
    "tanay": study("tanay_2018", "svm", seeds=None),
    "sato": study("sato_2019", "fig1"),
    "elsayed": study("elsayed_2018", "toy"),
    "wan": study("wan_2018", "fig1", maker="plane_recipe", steps=300),
}


# ------------------------------------------------------------------------------------------ record and compare


def recorded(names: list[str], *, loud: bool = True) -> dict[str, Any]:
    """The record of these parts by the code that is imported."""
    torch.set_num_threads(1)
    parts: dict[str, Any] = {}
    for name in names:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), quiet():
                warnings.simplefilter("ignore")
                parts[name] = {"entries": PARTS[name]()}
        except Exception as error:  # the other parts go on
            parts[name] = {"failed": f"{type(error).__name__}: {error}", "entries": {}}
        parts[name]["seconds"] = round(time.perf_counter() - start, 1)
        if loud:
            what = parts[name].get("failed") or f"{len(parts[name]['entries'])} entries"
            bad = [key for key in parts[name]["entries"] if key.endswith(": failed")]
            print(
                f"{name}: {what}, {parts[name]['seconds']} s",
                *bad,
                sep="\n  failed: " if bad else "",
                flush=True,
            )
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.processor(),
        "parts": parts,
    }


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def renamed(key: str) -> str:
    """The key of an entry under the new names."""
    for kind in ("measurement ", "exhibit "):
        before, found, text = key.partition(kind + "{")
        if found:
            return before + kind + json.dumps(_renamed_row(json.loads("{" + text)), sort_keys=True)
    for old, new in RENAMED["word"].items():
        key = re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w.])", new, key)
    return key


def renamed_value(value: Any) -> Any:
    """The value of an entry with its unit, or its columns, under the new names."""
    if not isinstance(value, Mapping) or "sha256" in value:
        return value
    if "unit" in value:
        return {**value, "unit": RENAMED["unit"].get(value["unit"], value["unit"])}
    return {RENAMED["column"].get(key, key): inner for key, inner in value.items()}


def _renamed_row(row: dict[str, Any]) -> dict[str, Any]:
    words = RENAMED["value"]
    context = {
        RENAMED["context"].get(key, key): words.get(value, value) if isinstance(value, str) else value
        for key, value in row["context"].items()
    }
    audit, name = (
        RENAMED["audit"].get(row["audit"], row["audit"]),
        RENAMED["name"].get(row["name"], row["name"]),
    )
    method = RENAMED["method"].get(row["method"], row["method"])
    return {**row, "audit": audit, "name": name, "context": context, "method": method}


def difference(old: Any, new: Any) -> float | None:
    """The largest relative difference of two values, of an array in units of its largest entry; None of words."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and "sha256" not in old:
        each = [difference(old[key], new[key]) for key in old if key in new and old[key] != new[key]]
        return max((size for size in each if size is not None), default=None)
    a, b = _numbers(old), _numbers(new)
    if len(a) != len(b) or not a:
        return None
    if [*map(math.isfinite, a)] != [*map(math.isfinite, b)]:
        return math.inf
    a, b = ([one for one in numbers if math.isfinite(one)] for numbers in (a, b))
    size = max(map(abs, [*a, *b]), default=0.0)
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0) / size if size else 0.0


def alike(key: str, old: Any, new: Any) -> bool:
    """Whether two values are equal, to the bit but for what differs from run to run of one and the same code."""
    if old == new:
        return True
    allowed = [most for name, most in UNSTEADY_BITS.items() if f'"name": "{name}"' in key]
    if (
        not allowed
        or not isinstance(old, Mapping)
        or not isinstance(new, Mapping)
        or old.keys() != new.keys()
    ):
        return False
    size = difference(old, new)
    return size is not None and size <= allowed[0]


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        if "sha256" in value:
            return _numbers(value.get("values", []))
        return [one for inner in value.values() for one in _numbers(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in _numbers(inner)]
    if isinstance(value, str) and ("0x" in value or value in ("nan", "inf", "-inf")):
        return [float.fromhex(value)]
    return [float(value)] if isinstance(value, int | float) else []


def compare_records(old: dict[str, Any], new: dict[str, Any], names: list[str], most: int) -> bool:
    """Say for each part what differs; whether all is equal."""
    same = True
    for name in names:
        parts = [record["parts"].get(name) for record in (old, new)]
        failed = [part["failed"] for part in parts if part is not None and "failed" in part]
        if None in parts or failed:
            print(f"{name}: {failed[0] if failed else 'in one record only'}")
            same = False
            continue
        same &= compare_parts(name, parts[0]["entries"], parts[1]["entries"], most)
    return same


def compare_parts(name: str, before: dict[str, Any], after: dict[str, Any], most: int) -> bool:
    """Say what differs in one part."""
    old, new = (
        {renamed(key): renamed_value(value) for key, value in part.items()} for part in (before, after)
    )
    keys = list(dict.fromkeys((*old, *new)))
    differing = [
        key for key in keys if key not in old or key not in new or not alike(key, old[key], new[key])
    ]
    if not differing:
        print(f"{name}: equal ({len(keys)} entries)")
        return True
    print(f"{name}: {len(differing)} of {len(keys)} differ")
    largest = [size for key in differing if (size := difference(old.get(key), new.get(key))) is not None]
    if largest:
        print(f"  largest relative difference (of the values kept): {max(largest):.3g}")
    for key in differing[:most]:
        print(f"  {key}")
        if key not in old or key not in new:
            print(f"    only in the {'older' if key in old else 'newer'} record")
            continue
        size = difference(old[key], new[key])
        print(
            f"    {brief(old[key])} -> {brief(new[key])}"
            + ("" if size is None else f"   relative {size:.3g}")
        )
    if len(differing) > most:
        print(f"  and {len(differing) - most} more")
    return False


def brief(value: Any) -> str:
    """A value to read."""
    if isinstance(value, Mapping) and "sha256" in value:
        kept = ", ".join(f"{number:.17g}" for number in _numbers(value)[:3])
        return f"{value['dtype']}{value['shape']} {value['sha256'][:8]} [{kept}, ...]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {brief(one)}" for key, one in value.items() if one is not None) + "}"
    if isinstance(value, str) and "0x" in value:
        return f"{float.fromhex(value):.17g}"
    return str(value)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("file2", type=Path, nargs="?")
    parser.add_argument("--only", help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--show", type=int, default=SHOWN, help="differing entries to show of each part")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else None
    for name in names or ():
        if name not in PARTS:
            parser.error(f"--only must name parts of {','.join(PARTS)}; got {name!r}")
    print(f"clearance from {Path(first('clearance').__file__).parent}")
    if given.what == "record":
        record = recorded(names or list(PARTS))
        if given.file.exists():  # parts that were not asked for stay as they are
            record["parts"] = json.loads(given.file.read_text())["parts"] | record["parts"]
        given.file.write_text(json.dumps(record, indent=0) + "\n")
        return 0
    old = json.loads(given.file.read_text())
    names = names or list(old["parts"])
    new = json.loads(given.file2.read_text()) if given.file2 else recorded(names)
    for what in ("torch", "numpy", "machine"):
        if old[what] != new[what]:
            print(f"not comparable to the bit: {what} {old[what]} and {new[what]}")
    return 0 if compare_records(old, new, names, given.show) else 1


if __name__ == "__main__":
    sys.exit(main())
