"""The page on how the features lie."""

from clearance.report.audit_page import AuditPage, Term

PAGE = AuditPage(
    title="Class scatter",
    reading=(
        "Lower is better: how wide the classes are, compared with how far apart they lie; it has no unit, so "
        "networks can be compared."
    ),
    glossary={
        "within_between": Term(
            "Spread within classes over spread between classes",
            "How far the network's features lie from their class average, compared with how far class averages lie "
            "apart.",
            "Lower is better; 0 would mean that each class is a single point.",
            "It ignores shape: two classes may lie far apart on average and still touch.",
        ),
        "cdnv": Term(
            "Class-distance normalised variance",
            "For each pair of classes, their variance over twice the squared distance of their averages; "
            "then averaged.",
            "Lower is better; well below 1 means that pairs of classes are well separated.",
            "An average over pairs can hide one pair that is mixed up.",
        ),
        "nc1": Term(
            "Within-class variability (NC1)",
            "The within-class scatter, measured in units of the between-class scatter, direction by direction.",
            "Lower is better; it tends to 0 in networks that are trained long after they make no more errors.",
            "A low value on the training images says nothing about unseen images: use the test value.",
        ),
    },
    drawn=("features",),
)
