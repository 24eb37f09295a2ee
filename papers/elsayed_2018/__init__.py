"""Large Margin Deep Networks for Classification (Elsayed et al., NeurIPS 2018): recipes, claims, studies."""

from papers.engine.catalogue import Paper, Study

_DATASETS = ("digits", "mnist", "cifar10")

ABOUT = Paper(
    "Large Margin Deep Networks for Classification, NeurIPS 2018",
    studies={
        "toy": Study(
            "papers.elsayed_2018.toy:run",
            "Fig. 1b: two classes in the plane, and exact distances to the boundary",
            passages="papers.elsayed_2018.toy:passages_in",
        ),
        "search": Study(
            "papers.elsayed_2018.search_rates:run",
            "learning rates of all studies below, searched on a part of the training set",
            datasets=_DATASETS,
        ),
        "search-clean": Study(
            "papers.elsayed_2018.search_rates:run_clean",
            "learning rates of the studies of attacks",
            datasets=_DATASETS,
        ),
        "search-noise": Study(
            "papers.elsayed_2018.search_rates:run_noise",
            "learning rates of the study of wrong labels",
            datasets=_DATASETS,
        ),
        "search-few": Study(
            "papers.elsayed_2018.search_rates:run_few",
            "learning rates of the study of few images",
            datasets=_DATASETS,
        ),
        "search-gamma": Study(
            "papers.elsayed_2018.search_rates:run_gamma",
            "gammas and learning rates of the margins in the study of wrong labels",
            datasets=_DATASETS,
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
            "why margins do not have less error on few images (claim 4): two possible causes",
            datasets=_DATASETS,
        ),
        "noise-clipping": Study(
            "papers.elsayed_2018.causes:run_clipping",
            "whether the l2 margin errs less under label noise (claim 1) because its gradients are clipped",
            datasets=_DATASETS,
        ),
        "denominator": Study(
            "papers.elsayed_2018.causes:run_denominator",
            "whether it costs accuracy that the denominator of the distance is a constant (claim 17)",
            datasets=_DATASETS,
        ),
        "white-box": Study(
            "papers.elsayed_2018.attacked:run_white_box",
            "FGSM and iterated FGSM with the network's own gradients",
            datasets=_DATASETS,
        ),
        "black-box": Study(
            "papers.elsayed_2018.attacked:run_black_box",
            "the same attacks, made on another network",
            datasets=_DATASETS,
        ),
        "adversarially-trained": Study(
            "papers.elsayed_2018.attacked:run_adversarially_trained",
            "the white-box attacks, on networks trained on FGSM images",
            datasets=_DATASETS,
        ),
    },
    full_protocol="papers.elsayed_2018.protocol:full_protocol",  # the paper's network on all of MNIST
)
