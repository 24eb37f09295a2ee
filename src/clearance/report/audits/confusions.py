"""The page on classes that are taken for each other."""

from markupsafe import Markup
from scipy.special import bdtrc

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import CLOSE, AuditPage, Finding, Severity, Term, with_ends
from clearance.report.audits.mistakes import pair_gallery
from clearance.report.findings import Findings
from clearance.report.numbers import data

LEVEL = 0.05
TITLE, OUTSIDE = "Worst pair", "Outputs without a class"
MOST = 0.5  # share of the errors from which on a pair of classes is a warning ...
FEW_PAIRS = 3  # ... where there are more pairs than this ...
FEWEST = 5  # ... and it has at least so many errors


def _worst_pair(findings: Findings) -> list[Finding]:
    share = findings.row("mean", "confusions", "worst_share")
    named = findings.exhibits("confusions", "pairs")
    if share is None or not named or not share.n:
        return []
    shown = named[0].exhibit
    errors, pair = int(shown.columns["errors"][0]), str(shown.columns["pair"][0])
    pairs = int(shown.context["pairs"])
    others, outside = _of_no_pair(findings)
    if errors == 0 and not others:
        return [Finding(TITLE, "fine", Markup("No test image is wrong, so no two classes are confused."))]
    if outside is not None and (outside.value > share.value or errors == 0):
        todo = (
            "See what the further outputs stand for."
            if findings.report.recipe.get("outputs", {}).get("by") == "name"
            else "Check that the outputs are in the order of the classes, and what the further outputs stand for."
        )
        severity = _severity(findings, outside, round(outside.value * (outside.n or 0)))
        return [Finding(OUTSIDE, severity, others.lstrip(), todo if severity != "information" else "")]
    if errors == 0:
        return [Finding(TITLE, "fine", Markup("No two classes are confused:") + others)]
    # picked out of all pairs: it stands out where that many errors are unlikely for any of them
    if min(1.0, pairs * float(bdtrc(errors - 1, share.n, 1 / pairs))) > LEVEL:
        return [Finding(TITLE, "fine", Markup("No two classes stand out among the mistakes.") + others)]
    said = (
        Markup("{}: {} of {} errors, {}.").format(pair, errors, data(share.n, "count"), with_ends(share))
        + others
    )
    todo = f"Look at the images of {pair} and at their labels first."
    common = share.value >= MOST and pairs > FEW_PAIRS
    severity = _severity(findings, share, errors) if common else "information"
    return [Finding(TITLE, severity, said, todo, pictures=pair_gallery(findings, pair)[:1])]


def _severity(findings: Findings, share: SummaryRow, errors: int) -> Severity:
    if errors < FEWEST:
        return "information"
    own = findings.own_error(findings.methods[0])
    return "problem" if own is not None and share.value * own.value >= CLOSE else "warning"


def _of_no_pair(findings: Findings) -> tuple[Markup, SummaryRow | None]:
    """What is said of mistakes between no two classes, and the share of answers beyond the classes."""
    outside = findings.row("mean", "confusions", "outside_share")
    unanswered = findings.row("mean", "confusions", "unanswered_share")
    said = Markup("")
    if outside is not None:
        said += Markup(" {} of the mistakes are answers of an output beyond the classes.").format(
            with_ends(outside)
        )
    if unanswered is not None:
        said += Markup(" {} of the mistakes are images whose logits are not finite.").format(
            with_ends(unanswered)
        )
    return said, outside


PAGE = AuditPage(
    title="Confused classes",
    reading="If one pair has a large share of the errors, look at its images and check its labels.",
    place=24,
    glossary={
        "worst_share": Term(
            "Share of errors between the worst pair",
            "Of all wrong test images, the share that confuses two classes, for the pair with the most.",
            "Lower is better: no two classes stand out.",
            "The pair is picked by its own count, so on new images its share will be smaller on average.",
        ),
        "outside_share": Term(
            "Share of errors beyond the classes",
            "Of all wrong test images, the share for which the network names an output that stands for none of the "
            "classes. It has more outputs than there are classes.",
            "Lower is better: a large share means that the outputs are in another order than the classes, or that "
            "the network knows more classes than these images are of.",
            "Such an error is between no two of the classes.",
        ),
        "unanswered_share": Term(
            "Share of errors without finite logits",
            "Of all wrong test images, the share whose logits are NaN or infinite.",
            "It should be 0 %; this row is there only where it is not.",
            "Such an error is between no two of the classes.",
        ),
    },
    drawn=("pairs",),  # the confusion matrix shows them
    findings=_worst_pair,
)
