"""The names of papers and of the studies that each is tried by; nothing is imported until it is used."""

from dataclasses import dataclass
from typing import Any

from clearance.experiments.catalogue import Entry


@dataclass(frozen=True)
class Study(Entry):
    """A study of a paper: a function of a :class:`StudyRequest` that returns the ledger's path.

    Args:
        rooted: Whether it reads files below the request's ``root``.
        datasets: Which datasets it can be asked for; none where it has one of its own.
    """

    rooted: bool = False
    datasets: tuple[str, ...] = ()


PAPERS = {
    "sato-2019": Entry(
        "clearance.experiments.reproductions.sato_2019",
        "Breaking Inter-Layer Co-Adaptation by Classifier Anonymization (FOCA), ICML 2019",
    ),
    "elsayed-2018": Entry(
        "clearance.experiments.reproductions.elsayed_2018",
        "Large Margin Deep Networks for Classification, NeurIPS 2018",
    ),
    "wan-2018": Entry(
        "clearance.experiments.reproductions.wan_2018",
        "Rethinking Feature Distribution for Loss Functions in Image Classification (L-GM), CVPR 2018",
    ),
    "tanay-2018": Entry(
        "clearance.experiments.reproductions.tanay_2018",
        "A New Angle on L2 Regularization, 2018",
    ),
}

_ELSAYED = "clearance.experiments.reproductions.elsayed_2018"
_ELSAYED_ON: dict[str, Any] = {"rooted": True, "datasets": ("digits", "mnist", "cifar10")}
_WAN = "clearance.experiments.reproductions.wan_2018"
_WAN_ON: dict[str, Any] = {"rooted": True, "datasets": ("digits", "mnist", "cifar10", "cifar100")}
_TANAY = "clearance.experiments.reproductions.tanay_2018"
_TANAY_ON: dict[str, Any] = {"rooted": True, "datasets": ("digits", "mnist", "fashion-mnist")}
# LeNet is too large for 8x8 images
_LENET_ON: dict[str, Any] = {"rooted": True, "datasets": ("mnist", "fashion-mnist")}

PROTOCOLS = {
    "elsayed-2018": Entry(f"{_ELSAYED}.protocol:full_protocol", "the paper's network on all of MNIST"),
    "wan-2018": Entry(f"{_WAN}.protocol:full_protocol", "the released networks on MNIST and CIFAR-100"),
}
"""Recipes in full size of papers whose studies are scaled down for a CPU."""

STUDIES = {
    "elsayed-2018": {
        "toy": Study(
            f"{_ELSAYED}.toy:run", "Fig. 1b: two classes in the plane, and exact distances to the boundary"
        ),
        "search": Study(
            f"{_ELSAYED}.search_rates:run",
            "the learning rates of the studies below, on a part of the training set; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "search-clean": Study(
            f"{_ELSAYED}.search_rates:run_clean",
            "those for attacks alone; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "search-noise": Study(
            f"{_ELSAYED}.search_rates:run_noise",
            "those for the study of wrong labels alone; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "search-few": Study(
            f"{_ELSAYED}.search_rates:run_few",
            "those for few images alone; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "noise": Study(
            f"{_ELSAYED}.noise:run",
            "wrong training labels, up to 80 %; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "small-data": Study(
            f"{_ELSAYED}.small_data:run",
            "few training images, the same number of steps; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "small-data-causes": Study(
            f"{_ELSAYED}.causes:run_small_data",
            "why margins on few images err no less (4): two changes; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "noise-causes": Study(
            f"{_ELSAYED}.causes:run_noise",
            "why the l2 margin is not the best of all (2a): two changes; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "white-box": Study(
            f"{_ELSAYED}.attacked:run_white_box",
            "FGSM and iterated FGSM with the network's own gradients; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "black-box": Study(
            f"{_ELSAYED}.attacked:run_black_box",
            "the same images made on another network; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
        "adversarially-trained": Study(
            f"{_ELSAYED}.attacked:run_adversarially_trained",
            "the white box, for networks trained on FGSM images; takes --dataset and --root",
            **_ELSAYED_ON,
        ),
    },
    "sato-2019": {
        "weakness": Study(
            "clearance.experiments.reproductions.sato_2019.weakness:run",
            "how weak FOCA's heads must be: images, steps, decay, max-norm and reuse, on digits",
        ),
        "new-classes": Study(
            "clearance.experiments.reproductions.sato_2019.new_classes:run",
            "whether FOCA's features help with digits that were left out of training",
        ),
        "fine-tuning": Study(
            "clearance.experiments.reproductions.sato_2019.fine_tuning:run",
            "what a few epochs of FOCA do to a network that was trained plainly; on MNIST with --root, else on digits",
            rooted=True,
        ),
        "fig1": Study(
            "clearance.experiments.reproductions.sato_2019.fig1:run",
            "the toy of Fig. 1: features in the plane, joint training against FOCA, on two moons",
        ),
        "causes": Study(
            "clearance.experiments.reproductions.sato_2019.causes:run",
            "why a retrained head is not worse than the model's own (A6): two causes, on MNIST; takes --root",
            rooted=True,
        ),
        "squared-error": Study(
            "clearance.experiments.reproductions.sato_2019.squared_error:run",
            "whether classes are nearly one-dimensional (P1) with squared error too, on digits",
        ),
    },
    "wan-2018": {
        "fig1": Study(
            f"{_WAN}.fig1:run",
            "Fig. 1 and 2: two features, the learned likelihood, the margin's regions; takes --dataset and --root",
            rooted=True,
            datasets=("digits", "mnist"),
        ),
        "accuracy": Study(
            f"{_WAN}.accuracy:run",
            "errors of every loss, and how good its probabilities are; takes --dataset and --root",
            **_WAN_ON,
        ),
        "fgsm": Study(
            f"{_WAN}.fgsm:run",
            "table 6: errors under FGSM, beside the scale-proof verdict; takes --dataset and --root",
            **_WAN_ON,
        ),
        "verification": Study(
            f"{_WAN}.verification:run",
            "Fig. 4: whether likelihoods tell attacked images; takes --dataset and --root",
            **_WAN_ON,
        ),
        "left-out-class": Study(
            f"{_WAN}.left_out_class:run",
            "whether likelihoods tell images of a class left out of training; takes --dataset and --root",
            **_WAN_ON,
        ),
        "search": Study(
            f"{_WAN}.search_rates:run",
            "the learning rates of these studies, on a part of the training set; takes --dataset and --root",
            **_WAN_ON,
        ),
        "combinations": Study(
            f"{_WAN}.combinations:run",
            "FOCA with mixture heads, and L-GM with a large margin added, on digits",
        ),
    },
    "tanay-2018": {
        "svm": Study(
            f"{_TANAY}.svm:run",
            "all pairs of classes at 81 lambdas: exact machines, angle, distances, errors; takes --dataset and --root",
            **_TANAY_ON,
        ),
        "lenet": Study(
            f"{_TANAY}.lenet:run",
            "LeNet with high and low weight decay, two initialisations; takes --dataset and --root",
            **_LENET_ON,
        ),
        "adversarial": Study(
            f"{_TANAY}.lenet:run_adversarial",
            "how far images must go until LeNet is sure of another class; takes --dataset and --root",
            **_LENET_ON,
        ),
        "depth": Study(
            f"{_TANAY}.depth:run",
            "whether weight decay helps less with depth: perceptrons of 1 to 8 layers; takes --dataset and --root",
            **_TANAY_ON,
        ),
    },
}
