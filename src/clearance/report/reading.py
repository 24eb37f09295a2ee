"""What each audit is called on a page, and one sentence on how to read its numbers."""

TITLES = {
    "accuracy": "As trained",
    "co_adaptation": "With rebuilt last layers",
    "deeper_cut": "With rebuilt last layers, cut one layer later",
    "geodesic": "How far the last layers move",
    "class_scatter": "How the features lie",
    "low_dimension": "The main directions of the features",
    "neural_collapse": "Whether classes are points",
    "churn": "Whether rebuilt last layers agree",
    "preprocessing": "With images prepared in another way",
    "refit": "With a new last layer from all training images",
    "class_pairs": "Classes taken for each other",
    "flip_size": "The smallest change that changes the answer",
    "unknowns": "Things it has never seen",
    "new_classes": "Classes that the network has never seen",
    "robustness": "Under the worst of all attacks",
    "attacked": "Under the attacks of the paper",
    "boundary_distance": "How far images are from a mistake",
    "sure_mistakes": "How far to a mistake that the network is sure of",
    "weight_scale": "How large weights and answers are",
    "likelihood": "Whether a low likelihood gives images away",
    "calibration": "As sure as it is right",
    "goodness_of_fit": "Whether classes are Gaussian clouds",
    "training": "Training",
}

READING = {
    "accuracy": (
        "Lower is better, and what counts are the test images: an error on training images that is much lower "
        "says how much was memorised."
    ),
    "co_adaptation": (
        "Lower is better; the less an error rises from many images to few, the less the features depend on "
        "the last layers that they grew up with."
    ),
    "deeper_cut": (
        "Read it as the rebuilt last layers above, with the first of the old ones kept: where errors drop, it "
        "was this layer that the others depended on."
    ),
    "geodesic": (
        "Shorter is better: last layers trained on few images that end up far from those trained on all of "
        "them have learned something else."
    ),
    "class_scatter": (
        "Lower is better: how wide the classes spread beside how far they lie apart, with no unit, so that "
        "networks can be compared."
    ),
    "low_dimension": "The fewer directions tell the classes apart, the simpler the features; it is no merit in itself.",
    "neural_collapse": (
        "Nearer to zero means that each class has become a point and the points lie evenly; it says how far "
        "training went, not how well."
    ),
    "churn": "Lower is better: where last layers that were trained alike disagree, the answer is a matter of luck.",
    "preprocessing": (
        "A gain whose interval lies above zero says that the model was trained on images prepared in another way than "
        "those it is fed here."
    ),
    "refit": "Where the interval of the gain lies above zero, the network's own last layer leaves accuracy unused.",
    "class_pairs": (
        "One pair with a large share of the errors is worth a look at its labels; a closeness of one is that "
        "of the median pair, more is nearer."
    ),
    "flip_size": (
        "Larger is better, as long as the alarm counts beside it stay near zero; it is a change that somebody "
        "aims, not one that happens by itself."
    ),
    "unknowns": (
        "Higher is better for what is rejected, and about 95 % is right for what is kept; the score was "
        "settled before anything was measured, and is no defence."
    ),
    "new_classes": "Lower is better; what the nearest pixel reaches without a network is what has to be beaten.",
    "robustness": (
        "Higher is better, and worth nothing where the alarm rings: then attacks failed for a reason that is "
        "no merit."
    ),
    "attacked": "Higher is better, but these are the attacks of a paper, and weaker than the worst that is known.",
    "boundary_distance": (
        "Longer is better; where the first-order distance and the one that was searched differ much, believe "
        "the search."
    ),
    "sure_mistakes": (
        "Longer is better, and every network was made as sure as the others first; the path is one that somebody "
        "takes, and not the shortest."
    ),
    "weight_scale": (
        "Nothing here is better or worse: loud answers and large weights explain why other numbers cannot be "
        "compared."
    ),
    "likelihood": (
        "Higher is better for telling apart and lower for passing; compare scores within one network alone, "
        "and read evasion first."
    ),
    "calibration": (
        "Lower is better; a gap between the numbers as trained and evened out is mended by one number, the "
        "temperature."
    ),
    "goodness_of_fit": (
        "A ratio near one says that features of a class lie as a Gaussian cloud would; scores that assume "
        "such clouds rest on it."
    ),
    "training": "What training took; it says nothing about the network.",
}


def audit_title(audit: str) -> str:
    """What an audit is called.

    >>> audit_title("flip_size"), audit_title("of_my_own")
    ('The smallest change that changes the answer', 'Of my own')
    """
    return TITLES.get(audit, audit.replace("_", " ").capitalize())
