"""The names that other people's code may rely on, and what looking them up costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import clearance

PUBLIC = {
    "Card", "Classifier", "Exhibit", "ImageSet", "LossTerms", "Measurement", "Method", "Outputs",
    "attacks", "audit", "audits", "compare", "data", "fit", "geometry", "heads", "load_dataset", "load_model",
    "models", "objectives", "regimes", "wrap",
}  # fmt: skip
"""Everything at the top. A name that goes is a break: say so in CHANGELOG.md."""

ROOMS = {
    "attacks": {
        "FGSM",
        "IFGSM",
        "PGD",
        "Attacked",
        "TargetedAscent",
        "as_attack",
        "transfer_matrix",
        "transferred",
    },
    "audits": {
        "Accuracy",
        "Audit",
        "ClassScatterAudit",
        "CoAdaptation",
        "Findings",
        "Subject",
        "wilson_interval",
    },
    "heads": {"MLP", "GradientHeads", "HeadStack", "HeadTraining", "TrainedHeads", "train_heads"},
    "objectives": {"CrossEntropyLoss", "Objective", "SquaredErrorLoss"},
    "regimes": {"FOCA", "EndToEnd", "FitResult", "Progress", "Regime", "Training", "fit"},
}


def test_the_surface_is_this():
    assert set(clearance.__all__) == PUBLIC
    assert clearance.__all__ == sorted(clearance.__all__)
    assert dir(clearance) == clearance.__all__


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_keep_their_names(room):
    assert ROOMS[room] <= set(getattr(clearance, room).__all__)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there_and_says_what_it_is(name):
    found = getattr(clearance, name)
    assert found.__doc__
    namespace: dict[str, object] = {}
    exec(f"from clearance import {name}", namespace)
    assert namespace[name] is found


def subpackages():
    folder = Path(clearance.__file__).parent
    return sorted(f"clearance.{path.parent.name}" for path in folder.glob("*/__init__.py"))


@pytest.mark.parametrize("package", subpackages())
def test_every_list_of_names_is_true(package):
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])
    assert len(names) == len(set(names))
    assert all(isinstance(name, str) and hasattr(module, name) for name in names)


def test_type_checkers_see_what_users_get():
    """The imports under TYPE_CHECKING are the lazy places, name by name."""
    tree = ast.parse(Path(clearance.__file__).read_text("utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (alias.asname or alias.name): (node.module, alias.name)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    places = {name: (place, name) for name, place in clearance._PLACES.items()}
    rooms = {name: ("clearance", name) for name in clearance._ROOMS}
    assert seen == places | rooms
    assert set(seen) == PUBLIC


def test_a_star_import_gives_all_of_them():
    namespace: dict[str, object] = {}
    exec("from clearance import *", namespace)
    assert set(namespace) >= PUBLIC


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'clearance' has no attribute 'nothing'"):
        _ = clearance.nothing
    assert not hasattr(clearance, "_nothing")


def test_importing_is_free_and_the_report_needs_no_torch():
    code = (
        "import sys, clearance\n"
        "loaded = [m for m in sys.modules if m.startswith('clearance.') or m in ('torch', 'numpy', 'scipy')]\n"
        "assert not loaded, loaded\n"
        "clearance.Measurement, clearance.Card, clearance.Method\n"
        "import clearance.records, clearance.report\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert clearance.__version__ == version("torch-clearance")
