"""Tanay and Griffin (2018), "A New Angle on L2 Regularization": the article's experiments, one study per file."""

from papers.engine.catalogue import Paper, Study

_DATASETS = ("digits", "mnist", "fashion-mnist")
_LENET = ("mnist", "fashion-mnist")  # LeNet is too large for 8x8 images

ABOUT = Paper(
    "A New Angle on L2 Regularization, 2018",
    studies={
        "svm": Study(
            "papers.tanay_2018.svm:run",
            "all pairs of classes at 81 lambdas: exact machines, angle, distances, errors",
            datasets=_DATASETS,
            judged="papers.tanay_2018.svm:judgements_in",
            passages="papers.tanay_2018.svm:passages_in",
        ),
        "lenet": Study(
            "papers.tanay_2018.lenet:run",
            "LeNet with high and low weight decay, two initialisations",
            datasets=_LENET,
        ),
        "adversarial": Study(
            "papers.tanay_2018.lenet:run_adversarial",
            "how far images must change until LeNet predicts another class with 95 % confidence",
            datasets=_LENET,
        ),
        "depth": Study(
            "papers.tanay_2018.depth:run",
            "whether weight decay helps less with depth: perceptrons of 1 to 8 layers",
            datasets=_DATASETS,
        ),
    },
)
