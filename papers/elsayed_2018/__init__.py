"""Large Margin Deep Networks for Classification (Elsayed et al., NeurIPS 2018): recipes, claims, studies."""

from papers.engine.catalogue import Paper, Study

_DATASETS = ("digits", "mnist", "cifar10")

ABOUT = Paper(
    "Large Margin Deep Networks for Classification, NeurIPS 2018",
    studies={
        "toy": Study(
            "papers.elsayed_2018.toy:run",
            "Fig. 1b: two classes in the plane, and exact distances to the boundary",
        ),
        "search": Study(
            "papers.elsayed_2018.search_rates:run",
            "the learning rates of the studies below, on a part of the training set",
            datasets=_DATASETS,
        ),
        "search-clean": Study(
            "papers.elsayed_2018.search_rates:run_clean", "those for attacks", datasets=_DATASETS
        ),
        "search-noise": Study(
            "papers.elsayed_2018.search_rates:run_noise",
            "those for the study of wrong labels",
            datasets=_DATASETS,
        ),
        "search-few": Study(
            "papers.elsayed_2018.search_rates:run_few", "those for few images", datasets=_DATASETS
        ),
        "noise": Study(
            "papers.elsayed_2018.noise:run", "wrong training labels, up to 80 %", datasets=_DATASETS
        ),
        "small-data": Study(
            "papers.elsayed_2018.small_data:run",
            "few training images, the same number of steps",
            datasets=_DATASETS,
        ),
        "small-data-causes": Study(
            "papers.elsayed_2018.causes:run_small_data",
            "why margins on few images err no less (4): two changes",
            datasets=_DATASETS,
        ),
        "noise-causes": Study(
            "papers.elsayed_2018.causes:run_noise",
            "why the l2 margin is not the best of all (2a): two changes",
            datasets=_DATASETS,
        ),
        "white-box": Study(
            "papers.elsayed_2018.attacked:run_white_box",
            "FGSM and iterated FGSM with the network's own gradients",
            datasets=_DATASETS,
        ),
        "black-box": Study(
            "papers.elsayed_2018.attacked:run_black_box",
            "the same images made on another network",
            datasets=_DATASETS,
        ),
        "adversarially-trained": Study(
            "papers.elsayed_2018.attacked:run_adversarially_trained",
            "the white box, for networks trained on FGSM images",
            datasets=_DATASETS,
        ),
    },
    full_protocol="papers.elsayed_2018.protocol:full_protocol",  # the paper's network on all of MNIST
)
