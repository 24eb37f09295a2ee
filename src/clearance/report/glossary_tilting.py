"""How to read the numbers on leaning boundaries."""

from collections.abc import Mapping

from clearance.report.entry import Entry

ENTRIES: Mapping[tuple[str, str], Entry] = {
    ("tilting", "angle"): Entry(
        "Tilting angle",
        "How far the boundary's weights lean away from the line through the two class averages, in radians.",
        "0 is the classifier that asks which average is nearer; near 1.57 (a right angle) the boundary passes close by "
        "nearly every sample.",
        "It says nothing about errors: a boundary may lean and be right.",
    ),
    ("tilting", "adversarial_distance"): Entry(
        "Adversarial distance",
        "How far the training samples lie from the boundary on average, errors counted against it, both classes alike.",
        "Higher is better: larger changes are needed to cross. No boundary has more than half the distance between the "
        "class averages.",
        "An average can hide samples that are close.",
    ),
    ("tilting", "error_distance"): Entry(
        "Error distance",
        "How deep the errors lie on the wrong side, averaged over all training samples, both classes alike.",
        "Lower is better; 0 means no errors, or none that is deep.",
        "It is no error rate: samples on the boundary are wrong and have 0.",
    ),
}
