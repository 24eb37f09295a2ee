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
    "attacks", "audit", "audits", "compare", "data", "fit", "geometry", "heads", "linear", "load_dataset",
    "load_model", "losses", "models", "training", "wrap",
}  # fmt: skip
"""Everything at the top. A name that goes is a break: say so in CHANGELOG.md."""

ROOMS = {
    "attacks": """
        AnyAttack Attack Attacked DeepFool FGSM IFGSM LOSSES MinimumNorm NoGradientWarning PGD
        SCALE_FREE SquareSearch TargetedAscent as_attack straight_through
        transfer_matrix transferred
    """,
    "audits": """
        Accuracy Audit BoundaryDistance Calibration Churn ClassScatter CoAdaptation Confusions Decay DeeperCut Findings
        Geodesic GoodnessOfFit HighConfidenceAdversarials Likelihood LinearProbe LowDimension MinimalPerturbation
        NeuralCollapse NewClasses OutOfDistribution Preprocessing Robustness Subject WeightScale check_comparable
        decayed_parameters rejection_threshold wilson_interval
    """,
    "data": """
        Augmentation GaussianClasses ImageSet Preprocessing StoredImageSet as_image_set draw_classes
        draw_samples gaussian_images open_folder open_images open_unlabelled
        preprocessing_of read_cifar10 read_cifar100 read_digits read_idx read_npz
        read_photographs split_classes
    """,
    "gate": """
        Outcome QUANTITIES Tolerance junit markdown rule
    """,
    "explore": """
        LOG_LAMBDAS ClassSamples Machines Scene all_machines check_fits example_distances loss_exhibits
        machines_of pair_exhibits pair_records render_explorer scene_of write_explorer
    """,
    "geometry": """
        ClassScatter best_threshold
        class_distance_normalised_variances class_means class_scatter covariance_spectrum dual_exponent
        dual_norm effective_rank first_axis_share first_order_distance nc1 nc2_equiangle
        nc2_equinorm nc2_simplex nc3 nc4 nearest_class_mean nearest_neighbour
        pooled_scatter principal_axes scatter_ratio versus_rest within_between_ratio
    """,
    "heads": """
        MLP EarlyStoppedHeads GaussianMixture GaussianMixtureHeads GradientHeads HeadStack HeadTraining
        PairHeads RidgeHeads TrainedHeads linear_from_mixture mixture_from_linear mixture_groups pair_head
        solve_ridge train_heads
    """,
    "heads.weak": """
        EarlyStoppedHeads GaussianMixtureHeads GradientHeads PairHeads RidgeHeads WeakHeads
    """,
    "linear": """
        Hyperplane LinearFit TiltingPlane adversarial_distance calibrated_temperature centroids class_plane
        error_distance error_rate large_scale_limit mirrored nearest_centroid projected rival_distances
        scaled_loss scores signed_distances small_scale_limit svm_path tilting_angle tilting_plane
    """,
    "models": """
        Classifier convnet13 convnet32 cut_deeper extract_features large_margin_cnn lenet lenet_plus
        load_weights predictions resnet20 small_cnn tiny_cnn tiny_lenet_plus vgg16 wrap
    """,
    "losses": """
        CenterLoss ContrastiveLoss CrossEntropyLoss DistanceSettings GammaQuantile GaussianMixtureLoss
        HingeLoss InverseDecay LargeMarginLoss LargeMarginSoftmaxLoss Loss SquaredErrorLoss StepUp
        SumLoss TripletLoss margin_distances
    """,
    "records": """
        ExhibitRecord Record Report RunNote SummaryRow load_report
    """,
    "training": """
        EndToEnd Execution FOCA FitResult Limits Progress Training WayOfTraining fit recalibrate_batch_norm
    """,
    "report": """
        Card Table comparison_table render_page write_page
    """,
    "runs": """
        Checkpoint RunDirectory differences digest flatten read_fingerprint read_result unflatten
        write_bytes write_json
    """,
}
"""Everything that a package exports, by package: a new name is one more word here, and one that goes is a break."""


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
    assert set(taken_in(package)) <= set(exported(package))


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
