"""The page on networks of two features: the shape of their classes in the plane."""

from clearance.report.audit_page import AuditPage, Term

PAGE = AuditPage(
    title="Plane",
    glossary={
        "roundness": Term(
            "Roundness of classes in the plane",
            "For networks of two features: how wide a class is across its longest direction, divided by its length;"
            " the mean over classes.",
            "1 is a round class, near 0 a ray. Neither is better for the error.",
            "It says nothing about how far apart classes are, and a few stray images make a class long.",
        ),
    },
)
