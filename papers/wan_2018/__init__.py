"""Rethinking Feature Distribution for Loss Functions (L-GM; Wan et al., CVPR 2018): recipes, claims, studies."""

from papers.engine.catalogue import Paper, Study

_DATASETS = ("digits", "mnist", "cifar10", "cifar100")

ABOUT = Paper(
    "Rethinking Feature Distribution for Loss Functions in Image Classification (L-GM), CVPR 2018",
    studies={
        "fig1": Study(
            "papers.wan_2018.fig1:run",
            "Fig. 1 and 2: two features, the learned likelihood, the margin's regions",
            datasets=("digits", "mnist"),
            passages="papers.wan_2018.fig1:passages_in",
        ),
        "accuracy": Study(
            "papers.wan_2018.accuracy:run",
            "errors of every loss, and how good its probabilities are",
            datasets=_DATASETS,
            passages="papers.wan_2018.accuracy:passages_in",
        ),
        "fgsm": Study(
            "papers.wan_2018.fgsm:run",
            "table 6: errors under FGSM, with the scale-independent verdict",
            datasets=_DATASETS,
        ),
        "verification": Study(
            "papers.wan_2018.verification:run",
            "Fig. 4: whether likelihoods detect attacked images",
            datasets=_DATASETS,
        ),
        "left-out-class": Study(
            "papers.wan_2018.left_out_class:run",
            "whether likelihoods detect images of a class left out of training",
            datasets=_DATASETS,
        ),
        "search": Study(
            "papers.wan_2018.search_rates:run",
            "learning rates of these studies, searched on a part of the training set",
            datasets=_DATASETS,
        ),
        "search-settings": Study(
            "papers.wan_2018.search_settings:run",
            "one setting of every loss besides its learning rate, by error and detection on a part of the training set",
            datasets=("digits", "mnist"),
        ),
        "covariance": Study(
            "papers.wan_2018.covariance:run",
            "whether variances that are learned change anything (claim K1), on digits",
        ),
        "combinations": Study(
            "papers.wan_2018.combinations:run",
            "FOCA with mixture heads, and L-GM with a large margin added, on digits",
        ),
    },
    full_protocol="papers.wan_2018.protocol:full_protocol",  # the released networks on MNIST and CIFAR-100
)
