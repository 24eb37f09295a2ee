"""How to read calibration, the fit of Gaussians, and how well a likelihood finds what was not learned."""

from collections.abc import Mapping

from clearance.report.entry import Entry

_KNOWN = "It is no defence: read beside it how often an attack that knows the score passes."

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("calibration", "nll"): Entry(
        "Surprise at the right answers",
        "Minus the logarithm of the probability that the network gave to the right class, averaged over test images.",
        "Lower is better, and lowest for true probabilities. One sure mistake among many images can be most of it.",
        "It rewards being right as well as being honestly unsure: read the error beside it.",
    ),
    ("calibration", "brier"): Entry(
        "Squared error of the probabilities",
        "The squared differences between the probabilities of all classes and what they should have been, 1 for the "
        "right class and 0 for the others, summed over classes and averaged over images.",
        "Lower is better, and lowest for true probabilities; from 0 to 2. Mistakes count, but none without limit.",
        "Like surprise it mixes being right with knowing when.",
    ),
    ("calibration", "overconfidence"): Entry(
        "Surer than right",
        "How sure the network says it is of its answers, on average, less the share of them that are right.",
        "Close to 0 is right. Above 0 it claims to be right more often than it is; below 0 less often.",
        "0 may hide that it is too sure of some images and not sure enough of others: look at the picture.",
    ),
    ("calibration", "ece"): Entry(
        "Calibration error",
        "Images are sorted into bins by the largest probability. In each bin: how far the share of right images is "
        "from the mean of these probabilities; averaged over images.",
        "0 means as sure as right, on average over each bin. With few images it is above 0 by chance alone.",
        "It depends on the bins, sees the largest probability only, and is 0 for a network that always answers with "
        "the overall share of a class. It is shown, and nothing is judged by it.",
    ),
    ("calibration", "ece_debiased"): Entry(
        "Calibration error less chance",
        "The calibration error, less what chance adds to it in bins of so few images.",
        "Close to 0 is right; it may fall a little below.",
        "Near 0 part of what chance adds is left. It too depends on the bins.",
    ),
    ("calibration", "temperature"): Entry(
        "Temperature that evens out sureness",
        "What all answers are divided by before they become probabilities, so that these are as sure as they are "
        "right; found on other images than those that it is tried on.",
        "1 means that nothing was to be done; above 1 that the network was too sure, below that it was not sure "
        "enough.",
        "It changes no answer.",
    ),
    ("goodness_of_fit", "distance_ratio"): Entry(
        "Squared distance to the own class, against expected",
        "How far test images lie from their class's average, squared and in units of the spread of training images, "
        "over what it would be if the features were Gaussian.",
        "1 is right in size. Above 1, test images lie farther out than training images did.",
        "1 does not make it a Gaussian. One test image in which a nearly silent unit speaks up can be most of it.",
    ),
    ("goodness_of_fit", "ks_distance"): Entry(
        "Gap to the Gaussian's distribution",
        "The largest difference between the share of images within some distance and the share that a Gaussian would "
        "have there, over all distances.",
        "Lower is better; 0 would be a Gaussian as far as distances can tell.",
        "No real network has 0; there is no threshold.",
    ),
    ("goodness_of_fit", "coverage"): Entry(
        "Images within the region of 95 %",
        "The share of test images inside the region that holds 95 % of the Gaussian.",
        "Close to 95 % is right. Far below, features have long tails; above, they sit tighter than a Gaussian.",
        "It looks at one region; the gap above looks at all of them.",
    ),
    ("likelihood", "auroc"): Entry(
        "Told apart",
        "The chance that an image that was not learned gets a lower score than a normal one (AUROC).",
        "100 % finds every one, 50 % is guessing; below, such images look more normal than normal ones.",
        f"Scores that see only pixels are often as good: what does not beat them is no finding. {_KNOWN}",
    ),
    ("likelihood", "aupr"): Entry(
        "Precision while looking for them",
        "Images are called not learned from the lowest score up; how many of those called are so, averaged over all "
        "that are found (AUPR).",
        "Higher is better; a score that knows nothing has the share of such images in the set.",
        f"It cannot be compared between sets with other shares. {_KNOWN}",
    ),
    ("likelihood", "fpr95"): Entry(
        "Passing when 95 % of normal images pass",
        "The share of images not learned that pass at the threshold at which 95 % of the normal ones do (FPR95).",
        "Lower is better; 95 % is guessing.",
        _KNOWN,
    ),
    ("likelihood", "rejected"): Entry(
        "Normal images rejected",
        "The threshold is chosen on one half of the test images so that it rejects 5 % of them; here is what it "
        "rejects of the other half.",
        "About 5 %, or less, is right.",
        "It holds for images drawn like these.",
    ),
    ("likelihood", "caught"): Entry(
        "Images caught",
        "The share of images that fooled the network, or that it never learned, below that threshold.",
        "Higher is better, beside 5 % of normal images that are lost.",
        _KNOWN,
    ),
    ("likelihood", "fooled"): Entry(
        "Images that fooled the network",
        "The share of right images that are wrong after an attack that knows of no detector.",
        "Lower is better, but see the worst of all attacks: this one is a weak one.",
        "With loud answers the attack has nothing to follow, and the number is low for the wrong reason.",
    ),
    ("likelihood", "evasion"): Entry(
        "Passing with the score in view",
        "The share of right images for which an attack that knows the score found a change that fools the network and "
        "passes its threshold.",
        "Lower is better.",
        "It is a lower bound: an attack that nobody has tried may pass more often.",
    ),
    ("unknowns", "rejected"): Entry(
        "Unknown images rejected",
        "The share of images of things that the network never saw whose features lie farther from those of training "
        "images than a threshold allows. It is chosen on one half of the test images so that it keeps 95 % of such.",
        "Higher is better; 5 % is what a threshold that knows nothing rejects.",
        "It holds for these images. Others may pass, and so may an attack that knows the threshold: it is no defence.",
    ),
    ("unknowns", "kept"): Entry(
        "Test images kept",
        "What the same threshold keeps of the other half of the test images.",
        "About 95 % is right.",
        "It holds for images drawn like these.",
    ),
    ("unknowns", "auroc"): Entry(
        "Told apart from unknown images",
        "The chance that an unknown image lies farther from the training images than a test image does, in the "
        "network's features.",
        "Higher is better; 50 % is guessing.",
        _KNOWN,
    ),
}
