"""How to read the numbers about classes as points, about agreement, and about classes never seen."""

from collections.abc import Mapping

from clearance.report.entry import Entry

_TRAINED = "Measured on the training images it says nothing about unseen ones: read the test value."

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("neural_collapse", "nc1"): Entry(
        "Spread within classes",
        "How widely each class is spread, in units of how far the class averages lie apart, direction by direction.",
        "Lower is better; 0 would mean that each class is a single point.",
        _TRAINED,
    ),
    ("neural_collapse", "nc2_equinorm"): Entry(
        "Class averages unequally far out",
        "How unequal the distances of the class averages from the middle of all images are, as a share of the mean.",
        "0 means that all lie equally far out.",
        "Equally far out is not far apart.",
    ),
    ("neural_collapse", "nc2_equiangle"): Entry(
        "Class averages at unequal angles",
        "How unequal the angles between class averages are, seen from the middle of all images.",
        "0 means that every two classes lie at the same angle.",
        "Two classes always have 0.",
    ),
    ("neural_collapse", "nc2_simplex"): Entry(
        "Distance from the widest angles",
        "How far the angles between class averages are from the widest that as many classes can all have.",
        "0 means that the averages are the corners of a regular figure, as far apart as possible.",
        "Two classes always have 0. Errors can be few long before it is small.",
    ),
    ("neural_collapse", "nc3"): Entry(
        "Last layer away from the class averages",
        "How far the weights of a single last layer are from the class averages, both brought to the same size.",
        "0 means that the layer compares an image with the averages; 2 is the farthest there is.",
        "It depends on how long and how the layer was trained. Where a network has several last layers, fresh single "
        "ones are compared in their place.",
    ),
    ("neural_collapse", "nc4"): Entry(
        "Nearest average says otherwise",
        "The share of images to which the network gives another class than that of the nearest class average.",
        "0 % means that the network does no more than to look for the nearest average.",
        "It is no error: both answers may be right or wrong.",
    ),
    ("neural_collapse", "effective_rank"): Entry(
        "Directions filled by all images",
        "Along how many directions the images differ, each counted by its share of the spread.",
        "Where every class is a point it is one less than the number of classes.",
        "Less than that is no better: classes then share directions.",
    ),
    ("churn", "disagreement"): Entry(
        "Disagreement of rebuilt last layers",
        "Last layers are rebuilt several times, with other first weights or from other images. For each pair, the "
        "share of test images to which they give different answers; then averaged.",
        "Lower is better: it does not matter which of them one gets.",
        "Layers that are always wrong in the same way agree. Read it beside the errors.",
    ),
    ("churn", "worst_class_disagreement"): Entry(
        "Disagreement on the worst class",
        "The same for the one class of test images on which it is largest.",
        "Lower is better.",
        "The largest of several numbers is large partly by luck, the more so the fewer images a class has.",
    ),
    ("preprocessing", "gain"): Entry(
        "Gain from other preprocessing",
        "Usual ways to prepare images (other means and deviations, values up to 255, another order of colours) are "
        "tried on each half of the images; how many more images of the other half are right with the best of them.",
        "Zero or below is right. Clearly above zero, the network is fed with something else than it was trained on.",
        "Size, crop and interpolation are not tried: zero does not prove that the input is right.",
    ),
    ("refit", "error"): Entry(
        "Error with a new last layer",
        "One linear layer is trained anew on what the network makes of all training images; the mean over several.",
        "Lower is better; beside it stands what it gains.",
        "It says nothing of what further training of the whole network would do.",
    ),
    ("refit", "gain"): Entry(
        "Accuracy that a new last layer gains",
        "The error of the network's own last layers less that of the new one, on the same test images.",
        "About 0 there is nothing to gain. Clearly above 0 the last layers leave accuracy unused.",
        "Below 0 the network's own last layers are better than a single linear one, which is ordinary.",
    ),
    ("refit", "diverged_heads"): Entry(
        "New last layers that broke down",
        "How many of the new last layers could not be trained; each counts as guessing.",
        "0 is what one wants.",
        "Above 0 the error beside it is no measure of the features.",
    ),
    ("class_pairs", "worst_share"): Entry(
        "Share of errors between the worst pair",
        "Of all wrong test images, the share in which two classes are taken for each other, for the pair with most.",
        "Lower is better: no two classes stand out.",
        "The pair is picked by its own count, so that on new images its share will on average be smaller.",
    ),
    ("class_pairs", "worst_closeness"): Entry(
        "How much nearer the worst pair lies",
        "The distance between two classes' means, for their own spread: that of the median pair over that of the pair "
        "with most errors.",
        "At 1 the pair lies as far apart as the median pair; at 3 it is three times nearer.",
        "Where nothing is wrong, it is that of the nearest pair.",
    ),
    ("class_pairs", "largest_closeness"): Entry(
        "How much nearer the nearest pair lies",
        "The same for the two classes that lie nearest.",
        "Lower is better.",
        "Two classes may lie near and still be told apart.",
    ),
    ("flip_size", "median_flip"): Entry(
        "Change that flips half of the images",
        "How much an image has to be changed, aimed at the network, until it answers wrongly; the median over images "
        "that it is right on. In the range of pixels from 0 to 1.",
        "Higher is better.",
        "It is the smallest change that was found: there may be smaller ones. Read it with its alarm.",
    ),
    ("flip_size", "noise_flipped"): Entry(
        "Flipped by noise of that size",
        "The share of these images that random noise flips, as large as the change that flips half of them.",
        "Near 0 is usual: the change has to be aimed.",
        "One draw of noise for each image.",
    ),
    ("flip_size", "missed_flips"): Entry(
        "Alarm: flips that the search missed",
        "The share of these images for which a search without gradients found a change of that size, and the search "
        "for the smallest one did not.",
        "0 is what one wants. Far above it the size is too large: the network hides its gradients.",
        "The search without gradients finds few of them itself.",
    ),
    ("flip_size", "no_gradient"): Entry(
        "Alarm: images without a gradient",
        "The share of these images that no small change of any pixel seems to move.",
        "0 is what one wants. Far above it the size is too large.",
        "It looks at the image itself, not at its neighbourhood.",
    ),
    ("new_classes", "error"): Entry(
        "Error on classes never seen",
        "Some classes were left out of training. The last layers are rebuilt for these alone, from a few images of "
        "each, and tested on other images of them.",
        "Lower is better; “nearest image, pixel by pixel” is what has to be beaten.",
        "Classes that resemble those of training are easy. One choice of classes is one choice: compare several.",
    ),
}
