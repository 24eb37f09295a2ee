"""Sato et al. (2019), classifier anonymisation: claims, recipes for four datasets, and studies."""

from papers.engine.catalogue import Paper, Study

ABOUT = Paper(
    "Breaking Inter-Layer Co-Adaptation by Classifier Anonymization (FOCA), ICML 2019",
    studies={
        "weakness": Study(
            "papers.sato_2019.weakness:run",
            "how weak FOCA's heads must be: images, steps, decay, max-norm and reuse, on digits",
            passages="papers.sato_2019.weakness:passages_in",
        ),
        "new-classes": Study(
            "papers.sato_2019.new_classes:run",
            "whether FOCA's features help with digits that were left out of training",
            passages="papers.sato_2019.new_classes:passages_in",
        ),
        "fine-tuning": Study(
            "papers.sato_2019.fine_tuning:run",
            "a few epochs of FOCA after plain training; on MNIST with --root, else on digits",
            rooted=True,
        ),
        "fig1": Study(
            "papers.sato_2019.fig1:run",
            "the toy of Fig. 1: features in the plane, joint training against FOCA, on two moons",
            passages="papers.sato_2019.fig1:passages_in",
        ),
        "causes": Study(
            "papers.sato_2019.causes:run",
            "why a retrained head is not worse than the model's own (A6): two possible causes, on MNIST; needs --root",
            rooted=True,
        ),
        "later-cut": Study(
            "papers.sato_2019.later_cut:run",
            "FOCA with one more layer in its extractor, compared behind that layer at equal own error",
            datasets=("digits", "mnist"),
            passages="papers.sato_2019.later_cut:passages_in",
        ),
        "rivals": Study(
            "papers.sato_2019.rivals:run",
            "center, contrastive, triplet and L-GM losses and longer training beside FOCA, from few labels of MNIST",
            datasets=("mnist",),
        ),
        "search": Study(
            "papers.sato_2019.search_rates:run",
            "learning rates of CIFAR-10's recipe, four for every method, searched on half of the training images",
            datasets=("cifar10",),
        ),
        "squared-error": Study(
            "papers.sato_2019.squared_error:run",
            "whether classes are nearly one-dimensional (P1) with squared error too, on digits",
        ),
    },
)
