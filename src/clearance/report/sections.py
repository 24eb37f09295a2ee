"""The parts of a page that tell of one audit each, in the order of the papers; each only where it was measured."""

from clearance.report.attacked_section import attacked_section
from clearance.report.boundary_section import boundary_section
from clearance.report.calibration_section import calibration_section
from clearance.report.churn_section import churn_section
from clearance.report.collapse_section import collapse_section
from clearance.report.cut_section import cut_section
from clearance.report.directions_section import directions_section
from clearance.report.epochs_section import epochs_section
from clearance.report.findings import Findings
from clearance.report.fit_section import fit_section
from clearance.report.geodesic_section import geodesic_section
from clearance.report.likelihood_section import likelihood_section
from clearance.report.new_classes_section import new_classes_section
from clearance.report.robustness_section import robustness_section
from clearance.report.section import Section
from clearance.report.sure_section import sure_section
from clearance.report.tilting_section import tilting_section
from clearance.report.weight_section import weight_section

MAKERS = (
    epochs_section,
    geodesic_section,
    directions_section,
    cut_section,
    collapse_section,
    churn_section,
    new_classes_section,
    robustness_section,
    attacked_section,
    boundary_section,
    sure_section,
    weight_section,
    likelihood_section,
    calibration_section,
    fit_section,
    tilting_section,
)


def sections(findings: Findings) -> list[Section]:
    """Every part that the records have something for.

    >>> from clearance.records import Report
    >>> sections(Findings(Report({}, {}, "", ""), "digits"))
    []
    """
    return [section for make in MAKERS if (section := make(findings)) is not None]
