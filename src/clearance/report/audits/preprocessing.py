"""The page on images prepared in another way: whether a network is fed other images than it was trained on."""

import re

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import CLOSE, AuditPage, Finding, Term, points_with_ends
from clearance.report.findings import Findings

AUDIT = "preprocessing"
TITLE = "Input"
EQUAL = 0.01  # of the images: ways that are right on fewer than so many less are not told apart


def input_in_doubt(findings: Findings) -> bool:
    """Whether the network is right more often when it is fed otherwise, and a new last layer gains no more than that.

    A broken last layer, too, may be a little better on images that it was never meant to see; then a new one gains
    more.
    """
    return _gain(findings) is not None


def input_findings(findings: Findings) -> list[Finding]:
    """Names the way of preparing images that is better, or says that none of those tried is."""
    measured = findings.row("mean", AUDIT, "gain")
    gain, named = _gain(findings), findings.exhibits(AUDIT, "ways")
    if measured is None or not named:
        return []
    if findings.row("mean", "accuracy", "error_in_another_order", split="test") is not None:
        return []  # its outputs are in another order: what other images gain is chance
    if gain is None or gain.low is None:
        said = Markup("None of the usual ways to prepare images gives a higher accuracy: {}.")
        if measured.value > 0:
            said = Markup(
                "None of the usual ways to prepare images gives a significantly higher accuracy: {}."
            )
        if measured.low is not None and measured.low > 0:
            return []  # a new last layer gains more, and is named
        return [Finding(TITLE, "fine", said.format(points_with_ends(measured)))]
    columns = named[0].exhibit.columns
    shares = [float(share) for share in columns["share right"][:-1]]
    equal = [k for k, share in enumerate(shares) if share > shares[0] - EQUAL]
    said = Markup("With {} instead of the given preprocessing, the accuracy rises by {}").format(
        ", or as well with ".join(str(columns["way"][k]) for k in equal), points_with_ends(gain)
    )
    remedy, code = _remedy(findings, str(columns["remedy"][0]))
    if len(equal) > 1:
        others = (_remedy(findings, str(columns["remedy"][k]))[0] for k in equal[1:])
        remedy, code = f"Of these, take what its training script did. {remedy} Or: {' Or: '.join(others)}", ""
    train = findings.row("mean", AUDIT, "train_gain")
    if train is not None and train.low is not None and train.low <= 0:
        said += Markup(" on the test images, and changes by {} on the training images.").format(
            points_with_ends(train)
        )
        todo = f"Check that the images of test are prepared as those of train are. If they are: {remedy}"
        return [
            Finding(TITLE, "problem" if gain.low > CLOSE else "warning", said, todo, alone=gain.low > CLOSE)
        ]
    if gain.low > CLOSE:
        that = "in that way" if len(equal) == 1 else "in one of these ways"
        said += Markup(": the network was most likely trained on images prepared {}.").format(that)
        return [Finding(TITLE, "problem", said, f"{remedy} Then audit again.", code, alone=True)]
    todo = f"Check how its training prepared images. {remedy}"
    return [Finding(TITLE, "warning", said + Markup("."), todo, code)]


def _remedy(findings: Findings, remedy: str) -> tuple[str, str]:
    """What to do, and what to copy: options of the command, or arguments of `wrap` if the audit was a call of Python.

    >>> from types import SimpleNamespace
    >>> of = SimpleNamespace(report=SimpleNamespace(command="clearance.audit(...)"))
    >>> _remedy(of, "Give --mean 0.4,0.5 --std 0.2,0.3.")[1]
    'clearance.wrap(module, example=images, mean=(0.4, 0.5), std=(0.2, 0.3))'
    """
    options = {name: values.split(",") for name, values in _OPTIONS.findall(remedy)}
    if not findings.report.command.startswith("clearance.audit("):
        return remedy, " ".join(f"--{name} {','.join(values)}" for name, values in options.items())
    given = ", ".join(
        f"{name}={values[0]}" if len(values) == 1 else f"{name}=({', '.join(values)})"
        for name, values in options.items()
    )
    remedy = _OPTIONS.sub(lambda option: f"{option[1]}={option[2]}", remedy)
    remedy = remedy.replace("--mean", "`mean`").replace("--std", "`std`")
    return remedy, f"clearance.wrap(module, example=images, {given})" if given else ""


_OPTIONS = re.compile(r"--(\w+) ([\d.,]*\d)")


def _gain(findings: Findings) -> SummaryRow | None:
    """What other images gain, where that is more than nothing and not less than what a new last layer gains."""
    gain, probe = findings.row("mean", AUDIT, "gain"), findings.row("mean", "linear_probe", "gain")
    if gain is None or gain.low is None or gain.high is None or gain.low <= 0:
        return None
    if probe is not None and probe.low is not None and probe.low > gain.high:
        return None
    return gain


PAGE = AuditPage(
    title="Input preprocessing",
    reading=(
        "A gain whose interval lies above zero shows that the model was trained on images prepared in another way "
        "than here."
    ),
    place=20,
    glossary={
        "gain": Term(
            "Gain from other preprocessing",
            "Usual ways to prepare images (other means and deviations, values up to 255, another order of colours) are "
            "tried on each half of the images; the rise in accuracy on the other half with the best of them.",
            "Zero or below is right. Clearly above zero, the network gets other inputs than in its training.",
            "Size, crop and interpolation are not tried: zero does not prove that the preprocessing is right.",
            difference=True,
        ),
        "train_gain": Term(
            "The same on training images",
            "The rise in accuracy on training images with the way that is best on the test images.",
            "Near the gain on test images, the network was trained on images prepared in that way. Near or below "
            "zero, most likely only the test images are prepared so.",
            "A network that has learned its training images by heart may be right on them in several ways.",
            difference=True,
        ),
    },
    drawn=("ways",),  # the sentence says what the best one gains
    findings=input_findings,
)
