"""How to read the sizes of weights and answers, and what distances to the boundary come to on average."""

from collections.abc import Mapping

from clearance.report.entry import Entry

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("weight_scale", "weight_rms"): Entry(
        "Typical size of a weight",
        "The root mean square of a layer's weights, counted from the image.",
        "Neither direction is better. Compare methods layer by layer.",
        "Nothing, where normalisation follows the layer.",
    ),
    ("weight_scale", "spectral_norm"): Entry(
        "Most that a layer can stretch its input",
        "The largest singular value of a layer's weights. Of a convolution it is that of one patch.",
        "Neither direction is better. Of linear layers the product bounds how fast answers can change.",
        "The bound is never reached, as layers seldom stretch in the same direction; patches that overlap add to it.",
    ),
    ("weight_scale", "logit_scale"): Entry(
        "Size of the answers",
        "How far the answers of an image lie from their average over classes (root mean square).",
        "Neither direction is better. Small: all images are learnt from. Large: mistakes alone.",
        "Loud answers are not right answers.",
    ),
    ("weight_scale", "temperature"): Entry(
        "Calibrated temperature",
        "What answers are divided by, until the network is as sure as it is right, or until the median image is 95 % "
        "sure.",
        "Above one the network is surer than that, below one less sure.",
        "Dividing changes how sure a network is, and never what it answers.",
    ),
    ("weight_scale", "active_share"): Entry(
        "Training images that are still learnt from",
        "The share of training images that are right, for which the loss still asks for more.",
        "Near zero: only mistakes are learnt from, a sign of little regularisation. Near one: all images are.",
        "It counts images, and not how much each of them still changes.",
    ),
    ("weight_scale", "normalised_layers"): Entry(
        "Layers before normalisation",
        "How many layers are directly followed by normalisation, which takes the size of their weights away.",
        "Neither direction is better.",
        "Normalisation further on, or by a layer of your own, is not counted.",
    ),
    ("boundary_distance", "adversarial_distance"): Entry(
        "Adversarial distance",
        "The average of the first-order distance to the nearest rival, each class counting alike; mistakes count "
        "against it.",
        "Higher is better, in the unit of the pixels. It is what strong weight decay makes larger.",
        "It is an average: many images may still be close to a mistake. Images without a distance are left out.",
    ),
    ("boundary_distance", "error_distance"): Entry(
        "Error distance",
        "How deep the mistakes lie on the wrong side, to first order, on average over all images; images that are "
        "right count as zero.",
        "Lower is better. It is what weak weight decay makes smaller.",
        "It may be small with many mistakes, if all of them are near the boundary.",
    ),
    ("boundary_distance", "local_scale"): Entry(
        "Local scale",
        "How fast the gap between the right answer and the nearest rival closes when the image is changed; the median "
        "over images.",
        "Neither direction is better: it is the factor between a gap and a distance.",
        "A network with loud answers has a large one, and is not the less robust for it.",
    ),
    ("boundary_distance", "tilting_angle"): Entry(
        "Tilting angle",
        "The angle between the direction in which an image has to be changed to become a mistake, and the one from "
        "its class to the rival class: between the averages, or to the nearest image of it. In radians; the median.",
        "Small: the image has to be turned into the other class. Near a right angle (1.57): the boundary lies along "
        "the data, and a change that means nothing is enough.",
        "In many dimensions most directions are nearly at right angles: compare methods.",
    ),
    ("boundary_distance", "bisected_distance"): Entry(
        "Distance along the gradient",
        "How far an image must be moved straight along the gradient until the rival wins; the median. It is zero for "
        "mistakes.",
        "Beside the first-order distance: where both agree, the network is nearly straight on the way.",
        "It is an upper bound, and does not stay within the range of pixels.",
    ),
    ("boundary_distance", "mirror_share"): Entry(
        "Images with a mirror image",
        "The share of images for which a point on the other side was found that is as sure of the rival as the image "
        "is of its class.",
        "Near one is usual; of a straight network it is one.",
        "Mirror images are not kept within the range of pixels.",
    ),
    ("boundary_distance", "mirror_stretch"): Entry(
        "Way to the mirror image",
        "How much further than twice the first-order distance the mirror image is; the median of the ratio.",
        "One: as if the network were straight. Above one: it gets flatter on the way.",
        "It tells how straight the network is, and not how robust.",
    ),
    ("boundary_distance", "unreliable_share"): Entry(
        "Images whose distance is not to be trusted",
        "The share of images without a usable gradient, or where first order and the way along the gradient differ by "
        "more than a factor of two.",
        "Lower is better. Near zero the first-order numbers may be believed.",
        "Agreement along one line is no proof that no nearer mistake lies elsewhere.",
    ),
}
