"""How far the classes have become points in a regular pattern: the signs of neural collapse."""

from clearance.report.audit_page import AuditPage, Section, Term, section
from clearance.report.findings import Findings
from clearance.report.tables import by_method, means

AUDIT = "neural_collapse"
WHAT = (
    "Networks that are trained long after they make no more mistakes tend to contract each class to a point, with "
    "these points at the corners of a regular simplex, as far apart as possible. Each number except the last is "
    "zero when that is complete."
)
COLUMNS = (
    ("spread within classes", "nc1"),
    ("unequal distances of averages", "nc2_equinorm"),
    ("unequal angles of averages", "nc2_equiangle"),
    ("distance from the widest angles", "nc2_simplex"),
    ("distance of last layer from averages", "nc3"),
    ("nearest average disagrees", "nc4"),
    ("effective dimension", "effective_rank"),
)


def collapse_section(findings: Findings) -> Section | None:
    """A table for test images; what is known of training images alone is in the full table too."""
    columns = {}
    for title, name in COLUMNS:
        columns[title] = means(findings, AUDIT, name, split="train" if name == "nc3" else "test")
    table = by_method(
        findings,
        "On test images (the last layer: on training images)",
        columns,
        "If a network has several last layers, a single newly trained layer is compared with the averages.",
    )
    return section("Neural collapse: is each class a point?", [WHAT], [table])


_TRAINED = "Measured on the training images it says nothing about unseen ones: use the test value."
PAGE = AuditPage(
    title="Neural collapse",
    reading=(
        "Nearer to zero means that each class has become a point and the points lie evenly; it shows how far "
        "training went, not how well."
    ),
    place=70,
    glossary={
        "nc1": Term(
            "Spread within classes",
            "How widely each class is spread, in units of how far the class averages lie apart, direction by "
            "direction.",
            "Lower is better; 0 would mean that each class is a single point.",
            _TRAINED,
        ),
        "nc2_equinorm": Term(
            "Unequal distances of class averages",
            "How unequal the distances of the class averages from the middle of all images are, as a share of the "
            "mean.",
            "0 means that all lie at the same distance.",
            "Equal distances from the middle are not large distances from each other.",
        ),
        "nc2_equiangle": Term(
            "Unequal angles of class averages",
            "How unequal the angles between class averages are, seen from the middle of all images.",
            "0 means that every two classes lie at the same angle.",
            "Two classes always have 0.",
        ),
        "nc2_simplex": Term(
            "Distance from the widest angles",
            "How far the angles between class averages are from the widest angles possible for that number of classes.",
            "0 means that the averages are the corners of a regular figure, as far apart as possible.",
            "Two classes always have 0. Errors can be few long before this is small.",
        ),
        "nc3": Term(
            "Last layer away from the class averages",
            "How far the weights of a single last layer are from the class averages, both brought to the same size.",
            "0 means that the layer compares an image with the averages; 2 is the largest possible value.",
            "It depends on how long and how the layer was trained. Where a network has several last layers, newly "
            "trained single ones are compared instead.",
        ),
        "nc4": Term(
            "Nearest average disagrees",
            "The share of images for which the network predicts another class than that of the nearest class average.",
            "0 % means that the network predicts the nearest average.",
            "It is not an error: both predictions may be right or wrong.",
        ),
        "effective_rank": Term(
            "Effective dimension of all images",
            "Along how many directions the images differ, each weighted by its share of the variance.",
            "Where every class is a point it is one less than the number of classes.",
            "Less than that is not better: classes then share directions.",
        ),
    },
    section=collapse_section,
)
