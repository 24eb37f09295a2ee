"""How far the classes have become points in a regular pattern: the signs of neural collapse."""

from clearance.report.audit_page import AuditPage, Section, Term
from clearance.report.findings import Findings
from clearance.report.tables import by_method, mean

AUDIT = "neural_collapse"
WHAT = (
    "Networks that are trained long after they make no more mistakes tend to draw each class together to a "
    "point, and these points to the corners of a regular figure, as far apart as they can be. Each number but "
    "the last is zero where that is complete."
)
COLUMNS = (
    ("spread within classes", "nc1"),
    ("averages unequally far out", "nc2_equinorm"),
    ("averages at unequal angles", "nc2_equiangle"),
    ("off the widest angles", "nc2_simplex"),
    ("last layer off the averages", "nc3"),
    ("nearest average says otherwise", "nc4"),
    ("directions filled", "effective_rank"),
)


def collapse_section(findings: Findings) -> Section | None:
    """A table for test images; what is known of training images alone is in the full table too.

    >>> from clearance.records import Report
    >>> collapse_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    columns = {}
    for title, name in COLUMNS:
        split = "train" if name == "nc3" else "test"
        rows = findings.rows("mean", AUDIT, name, split=split)
        columns[title] = {row.method: mean(row) for row in rows}
    table = by_method(
        findings,
        "On test images (the last layer: on training images)",
        columns,
        "Where a network's last layers are several, the one compared with the averages is a single fresh layer.",
    )
    return None if table is None else Section("Are the classes points?", [WHAT], [table])


_TRAINED = "Measured on the training images it says nothing about unseen ones: read the test value."
PAGE = AuditPage(
    title="Whether classes are points",
    reading="Nearer to zero means that each class has become a point and the points lie evenly; it says how far "
    "training went, not how well.",
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
            "Class averages unequally far out",
            "How unequal the distances of the class averages from the middle of all images are, as a share of the "
            "mean.",
            "0 means that all lie equally far out.",
            "Equally far out is not far apart.",
        ),
        "nc2_equiangle": Term(
            "Class averages at unequal angles",
            "How unequal the angles between class averages are, seen from the middle of all images.",
            "0 means that every two classes lie at the same angle.",
            "Two classes always have 0.",
        ),
        "nc2_simplex": Term(
            "Distance from the widest angles",
            "How far the angles between class averages are from the widest that as many classes can all have.",
            "0 means that the averages are the corners of a regular figure, as far apart as possible.",
            "Two classes always have 0. Errors can be few long before it is small.",
        ),
        "nc3": Term(
            "Last layer away from the class averages",
            "How far the weights of a single last layer are from the class averages, both brought to the same size.",
            "0 means that the layer compares an image with the averages; 2 is the farthest there is.",
            "It depends on how long and how the layer was trained. Where a network has several last layers, fresh "
            "single ones are compared in their place.",
        ),
        "nc4": Term(
            "Nearest average says otherwise",
            "The share of images to which the network gives another class than that of the nearest class average.",
            "0 % means that the network does no more than to look for the nearest average.",
            "It is no error: both answers may be right or wrong.",
        ),
        "effective_rank": Term(
            "Directions filled by all images",
            "Along how many directions the images differ, each counted by its share of the spread.",
            "Where every class is a point it is one less than the number of classes.",
            "Less than that is no better: classes then share directions.",
        ),
    },
    section=collapse_section,
)
