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
    "attacks", "audit", "audits", "compare", "data", "diff", "fit", "geometry", "heads", "linear",
    "load_dataset", "load_model", "load_pretrained", "losses", "models", "training", "wrap",
}  # fmt: skip
"""Everything at the top. A name that goes is a break: say so in CHANGELOG.md."""

ROOMS = {
    "attacks": """
        APGD Attack DeepFool FGSM IFGSM MinimumNorm PGD SCALE_FREE SquareSearch TargetedAscent as_attack
        straight_through transferred
    """,
    "audits": """
        Accuracy Audit BoundaryDistance Calibration Churn ClassScatter CoAdaptation CommonCorruptions Confusions
        DeeperCut Duplicates Findings Geodesic GoodnessOfFit HighConfidenceAdversarials LabelSuspects Likelihood
        LinearProbe LowDimension MinimalPerturbation Mistakes NeuralCollapse NewClasses OutOfDistribution Performance
        PreprocessingMismatch Robustness SetFacts Subject WeightScale decayed_parameters rejection_threshold
    """,
    "data": """
        Augmentation ImageSet Preprocessing StoredImageSet gaussian_images open_images preprocessing_of
    """,
    "explore": """
        scene_of write_explorer
    """,
    "geometry": """
        class_scatter nc1 nc2_equiangle nc2_equinorm nc2_simplex nc3 nc4 within_between_ratio
    """,
    "heads": """
        GaussianMixture GaussianMixtureHeads GradientHeads HeadStack HeadTraining MLP
        RidgeHeads linear_from_mixture mixture_from_linear mixture_groups train_heads
    """,
    "linear": """
        Hyperplane LinearFit adversarial_distance error_distance error_rate
        svm_path tilting_angle tilting_plane
    """,
    "losses": """
        CenterLoss ContrastiveLoss CrossEntropyLoss DistanceSettings GammaQuantile GaussianMixtureLoss
        HingeLoss InverseDecay LargeMarginLoss LargeMarginSoftmaxLoss Loss SquaredErrorLoss StepUp SumLoss
        TrainingWarning TripletLoss margin_distances
    """,
    "models": """
        Classifier black_box convnet13 convnet32 extract_features large_margin_cnn lenet lenet_plus load_weights
        predictions resnet20 small_cnn vgg16 wrap
    """,
    "training": """
        EndToEnd Execution FOCA FitResult Limits TRADES Training WayOfTraining fit
    """,
}
"""Everything that a package exports, by package: a new name is one more word here, and one that goes is a break. What
other packages hold is for the library's own files, and they have no ``__all__``; studies find it in clearance.research.
"""


def test_the_surface_is_this():
    assert set(clearance.__all__) == PUBLIC
    assert clearance.__all__ == sorted(clearance.__all__)
    assert dir(clearance) == clearance.__all__


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there_and_says_what_it_is(name):
    found = getattr(clearance, name)
    assert found.__doc__
    namespace: dict[str, object] = {}
    exec(f"from clearance import {name}", namespace)
    assert namespace[name] is found


def packages():
    """Every package below the top, by its name from there."""
    folder = Path(clearance.__file__).parent
    return sorted(".".join(path.parent.relative_to(folder).parts) for path in folder.glob("*/**/__init__.py"))


def exported(package):
    return getattr(importlib.import_module(f"clearance.{package}"), "__all__", [])


def taken_in(package):
    """The names that a package's first file imports from its own files."""
    file = Path(importlib.import_module(f"clearance.{package}").__file__ or "")
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"clearance.{package}."):
            yield from (alias.asname or alias.name for alias in node.names)


@pytest.mark.parametrize("package", packages())
def test_every_package_exports_what_is_listed(package):
    names = exported(package)
    assert set(names) == set(ROOMS.get(package, "").split())
    assert len(names) == len(set(names))
    module = importlib.import_module(f"clearance.{package}")
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", packages())
def test_what_a_package_takes_from_its_files_it_exports(package):
    if package in ROOMS:
        assert set(taken_in(package)) <= set(exported(package))


def test_a_name_means_one_thing():
    places: dict[str, set[int]] = {}
    for package, names in ROOMS.items():
        for name in names.split():
            places.setdefault(name, set()).add(
                id(getattr(importlib.import_module(f"clearance.{package}"), name))
            )
    assert [name for name, things in places.items() if len(things) > 1] == []


def test_there_are_few_enough_to_learn():
    assert len(PUBLIC) <= 25
    assert sum(len(names.split()) for names in ROOMS.values()) <= 134


def test_the_lists_are_those_of_packages_that_are_there():
    assert set(ROOMS) <= set(packages())
    assert set(clearance._ROOMS) <= set(ROOMS)


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
        "others = ('torch', 'numpy', 'scipy', 'lightning', 'transformers', 'mlflow', 'wandb', 'timm', 'torchvision',\n"
        "          'ray', 'submitit', 's3fs')\n"
        "loaded = [m for m in sys.modules if m.startswith('clearance.') or m in others]\n"
        "assert not loaded, loaded\n"
        "clearance.Measurement, clearance.Card, clearance.Method\n"
        "import clearance.records, clearance.report\n"
        "assert 'torch' not in sys.modules\n"
        "import clearance.experiments.audit, clearance.experiments.compare, clearance.cli.__main__\n"
        "loaded = [m for m in sys.modules if m in others[3:] or m.startswith('clearance.integrations')]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert clearance.__version__ == version("torch-clearance")
