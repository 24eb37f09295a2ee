"""How to read the numbers under attack, the distances to a mistake, and those of training with wrong labels."""

from collections.abc import Mapping

from clearance.report.entry import Entry

_ALARM_ONLY = "It is there for the alarm alone: never read it as robustness."

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("robustness", "robust_accuracy"): Entry(
        "Right under the worst of all attacks",
        "Images are changed on purpose, by no more than a radius. An image counts as right only if the network gets it "
        "right as it is and after every attack of a row of them, all of which ignore how loud the answers are.",
        "Higher is better, at the same radius and norm. Near the share that is right without an attack means that "
        "nothing that was tried did any harm.",
        "It is an upper bound: a better attack may break more images. Networks that hide their gradients get higher "
        "numbers than they deserve; the signs beside it say where that is likely.",
    ),
    ("robustness", "cross_entropy_attack_accuracy"): Entry(
        "Right under plain attacks",
        "The same with the attacks of most papers, which follow the gradient of cross-entropy.",
        "Close to the worst case, all is well. Far above it, these attacks were misled, usually by loud answers.",
        _ALARM_ONLY,
    ),
    ("robustness", "noise_accuracy"): Entry(
        "Right under noise",
        "The same images, each with one random change of the same size instead of an attack.",
        "It should be well above the worst case: an attack that does no better than chance is no attack.",
        "It is one draw, and says nothing about an opponent.",
    ),
    ("robustness", "transfer_accuracy"): Entry(
        "Right on images made on another network",
        "Images are made with the gradients of another network and shown to this one. They count in the worst case.",
        "It should be above the worst case. If such images did more harm than the network's own gradients, these were "
        "hidden, and an alarm is raised.",
        "A high number alone says only that the two networks differ.",
    ),
    ("robustness", "alarms"): Entry(
        "Reasons for an alarm",
        "How many signs were seen that attacks were too weak, or that plain attacks were misled.",
        "Zero is right. The words are beside the numbers under attack.",
        "No alarm is no certificate: signs can be missing.",
    ),
    ("robustness", "full_radius_accuracy"): Entry(
        "Right where everything may change",
        "The radius is so large that every image there is lies within it.",
        "Close to zero is right: some image of another class is always within reach. More means that they got stuck.",
        "It is a test of the attack, not of the network.",
    ),
    ("robustness", "zero_gradients"): Entry(
        "Images without a gradient",
        "The share of images, of those that are right, on which a loss does not change at all with the image.",
        "Zero is right. With cross-entropy it means that answers are too loud; with the gap between answers, that the "
        "network has steps.",
        "A gradient that is there may still lead nowhere.",
    ),
    ("sure_mistakes", "sure_distance"): Entry(
        "Change until the network is sure of another class",
        "How far an image moves, in the Euclidean norm, until the network is as sure of the next class as it is of its "
        "answers in the median; the median over images.",
        "Higher is better. Compare it between networks: each was made equally sure first.",
        "It is no shortest way: see the nearest mistake found beside it.",
    ),
    ("sure_mistakes", "nearest_distance"): Entry(
        "Nearest mistake found, of the same images",
        "How far the nearest wrong image is that a search found, in the Euclidean norm; the median over images, and "
        "zero for those that are wrong already.",
        "Higher is better.",
        "A nearer wrong image may exist, and the network may be unsure of the one that was found.",
    ),
    ("sure_mistakes", "reached"): Entry(
        "Images that arrived at a sure mistake",
        "The share of images of which the network became that sure of another class, within the steps allowed.",
        "Neither direction is better. Where it is below a half, the distance beside it is infinite.",
        "Images that did not arrive might, with more steps.",
    ),
    ("sure_mistakes", "temperature"): Entry(
        "Temperature that makes networks equally sure",
        "What answers are divided by, so that the median image is as sure as was asked for, 95 % by default.",
        "Neither direction is better. Above one the network's answers are louder than that.",
        "It makes networks comparable, and not right as often as they say.",
    ),
    ("boundary_distance", "minimum_distance"): Entry(
        "Distance to the nearest mistake found",
        "A search looks for the nearest image that the network gets wrong; the median over images of how far it is. "
        "Zero for images that are wrong as they are.",
        "Higher is better. In the unit of the pixels, which go from zero to one.",
        "It is an upper bound, and far too long for a network that hides its gradients.",
    ),
    ("boundary_distance", "first_order_distance"): Entry(
        "Distance to a mistake, to first order",
        "The gap between the right answer and the nearest rival, over how fast it closes: the distance if the network "
        "were straight. Negative where the image is wrong as it is.",
        "Higher is better, at one layer. At the input it is in the unit of the pixels, elsewhere in units of how "
        "widely images lie at that layer.",
        "It is no bound of the true distance. Larger at a layer inside the network is not safer at the input.",
    ),
    ("training", "early_stopped_error"): Entry(
        "Error at the epoch that validation would choose",
        "The error on test images at the first epoch with the lowest error on images that were kept back from "
        "training, with labels as often wrong as those trained on.",
        "Lower is better. Far below the error of the last epoch means that training went on too long.",
        "Every other number is of the network after the last epoch.",
    ),
    ("training", "early_stopped_epoch"): Entry(
        "Epoch that validation would choose",
        "Which epoch that is.",
        "Neither direction is better.",
        "Early is not fast: steps of different methods cost differently.",
    ),
    ("attacked", "accuracy"): Entry(
        "Right under the attacks of the paper",
        "Images changed by FGSM or IFGSM, along the gradient of cross-entropy, by no more than a radius: with the "
        "network's own gradients (white box), or with those of another one (black box).",
        "Higher is what the paper calls more robust. At radius zero nothing is attacked.",
        "It is no evidence of robustness: such attacks fail on networks whose answers are loud. Read the worst of all "
        "attacks.",
    ),
    ("attacked", "confidence"): Entry(
        "How sure of attacked images",
        "The share that the network gives the class it names, on the same changed images: the mean over all of them, "
        "also those that it still gets right.",
        "Lower is what the paper calls less extreme: a network that is fooled had better not be sure.",
        "Answers that are quiet everywhere are low, too. It tells nothing about images that were attacked otherwise.",
    ),
    ("plane", "roundness"): Entry(
        "Roundness of classes in the plane",
        "For networks of two features: how wide a class is across its longest direction, over how long it is; the mean "
        "over classes.",
        "1 is a round class, near 0 a ray. Neither is better for the error.",
        "It says nothing about how far apart classes are, and a few stray images make a class long.",
    ),
}
