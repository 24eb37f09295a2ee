"""How to read the numbers behind Fig. 3, Fig. 4 and Table 1 of Sato et al. (2019), and those of the later cut."""

from collections.abc import Mapping

from clearance.report.entry import Entry

_LATER = "The same network is cut one layer later: the first of its last layers counts as part of the rest. "

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("geodesic", "distance"): Entry(
        "Distance between two sets of last layers",
        "Last layers trained on all images and last layers trained on one image of each class start from the same "
        "weights. The straight way between them is cut into equal steps; the lengths of the steps are squared, "
        "added up, and the root is taken. A step is long where it changes the answers much; the unit of such a change "
        "is the nat, about 1.44 bits.",
        "Lower is better: what the network passes on can be read from one image of each class almost as from all. "
        "Compare methods, never single values: more steps make the number smaller.",
        "As the paper measures it, a step counts little wherever answers are sure, even if the weights moved far; "
        "last layers that know nothing lie close together, too. Read it beside the errors and the other measures.",
    ),
    ("geodesic", "length"): Entry(
        "Length of the way between them",
        "The same steps, their lengths simply added up.",
        "Lower is better. It hardly depends on how many steps there are.",
        "There may be a shorter way than the straight one; this is its upper bound.",
    ),
    ("geodesic", "path_error_rise"): Entry(
        "Rise in errors from end to end",
        "The share of wrong answers at the one-image end of the way, minus that at the all-images end.",
        "Close to zero is better: one image of each class is enough.",
        "It says nothing about the places in between.",
    ),
    ("geodesic", "worst_path_error"): Entry(
        "Rise in errors to the worst place",
        "The largest share of wrong answers anywhere on the way, minus that at the all-images end.",
        "Close to zero is better: nowhere on the way do answers go wrong.",
        "It is never below zero, because the way begins at the all-images end.",
    ),
    ("geodesic", "diverged_heads"): Entry(
        "Ends of a way that broke down",
        "How many of the ways have an end whose training broke down. They count as infinitely long.",
        "Zero is right.",
        "It is a matter of how they were trained, not of the network alone.",
    ),
    ("low_dimension", "lda_eigenvalue"): Entry(
        "Scatter ratio of one class against the rest",
        "Features are brought to equal length and looked at along the one line on which the class lies farthest from "
        "all others, measured in how widely both are spread there. The line is found on training images; a small "
        "amount, the regulariser, is added to the spread so that lines without any spread do not win.",
        "Higher is better. The number for test images is the one to believe.",
        "With fewer training images than features, the number for training images is decided by the regulariser.",
    ),
    ("low_dimension", "threshold_error"): Entry(
        "Wrong side of the best threshold",
        "On that line, the share of test images that a single threshold between the class and the rest puts on the "
        "wrong side.",
        "Lower is better. Among ten equally common classes, never naming the class is wrong on 10 %.",
        "Chosen on the test images, as in the paper, it is smaller than any threshold would be in use.",
    ),
    ("low_dimension", "first_axis_share"): Entry(
        "Share of a class's spread on its first direction",
        "How much of the way in which the images of one class differ lies along a single direction.",
        "100 % means that the class is a line. The paper found classes close to lines with FOCA.",
        "A line is neither a point nor far from other classes: it says nothing about errors.",
    ),
    ("low_dimension", "effective_rank"): Entry(
        "Directions filled",
        "Along how many directions the images differ, each counted by its share of the spread (the exponential of "
        "the entropy of the shares).",
        "For a class, fewer means a simpler shape. All classes together need about one less than there are classes.",
        "Fewer is not always better: classes that share directions get mixed up.",
    ),
    ("deeper_cut", "error"): Entry(
        "Error with rebuilt last layers, cut one layer later",
        _LATER + "What follows is rebuilt from a few images, as before.",
        "Lower is better. A method that is ahead here too is not ahead only at the place where it was cut in training.",
        "The layer that is kept was trained with the last layers; with FOCA it was trained last of all.",
    ),
    ("deeper_cut", "gap"): Entry(
        "Gap to its own last layers, cut one layer later",
        _LATER + "The error with what follows rebuilt, minus the error of the network as it was trained.",
        "Close to zero is better.",
        "With few images a gap also contains what few images cost; compare it between methods.",
    ),
    ("deeper_cut", "diverged_heads"): Entry(
        "Rebuilt last layers that gave no answer, cut one layer later",
        _LATER + "How many of the rebuilt layers broke down while they were trained. They count as guessing.",
        "Zero is right.",
        "It is a matter of how they were trained, not of the network alone.",
    ),
    ("deeper_cut", "unfitted_heads"): Entry(
        "Rebuilt last layers that miss their own images, cut one layer later",
        _LATER
        + "How many of the rebuilt layers get some of the very images wrong from which they were made.",
        "Zero is right for few images.",
        "It does not say that the network is bad: last layers that are too simple miss images too.",
    ),
}
