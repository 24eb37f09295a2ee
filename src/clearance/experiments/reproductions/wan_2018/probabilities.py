"""Whether probabilities are right, which the slides claim as calibrated scores, and whether classes are Gaussian.

Proper scores judge probabilities; the expected calibration error depends on its bins and is shown only. No threshold
tells whether features are Gaussian: with enough images every network's are not.
"""

from clearance.audits.calibration import AS_TRAINED, FITTED
from clearance.audits.goodness_of_fit import ALL, OWN, REFITTED
from clearance.experiments.reproductions.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018.study import Column, method_table
from clearance.records import Report

AUDITS = ("calibration", "goodness_of_fit")
PROPER = {"nll": ("negative log-likelihood", "nats"), "brier": ("Brier score", "squared error")}
BINNED = {"ece": "ECE", "ece_debiased": "ECE, debiased"}
FIT = {
    "distance_ratio": ("mean 2d / D", "ratio"),
    "ks_distance": ("KS distance", "fraction"),
    "coverage": ("within the 95 % region", "fraction"),
}
WHOSE = {REFITTED: "fitted to training features", OWN: "as the mixture learned them"}


def sections(report: Report, dataset: str) -> list[str]:
    """Proper scores before and after a temperature, ECE beside them, and the fit of Gaussians; only what was measured.

    >>> sections(Report({}, {}, "", ""), "digits")
    []
    """
    measured = {record.measurement.audit for record in report.records}
    text = []
    if "calibration" in measured:
        text += [
            "## Whether probabilities are right: negative log-likelihood and Brier score",
            "On test images, as trained and after one temperature. A departure: no recipe keeps images back: it is "
            "the temperature from one half of the test images, measured on the other, and the other way round. "
            "No image is scored with a temperature that it helped to choose.",
            method_table(
                report, [proper(name, state) for state in (AS_TRAINED, FITTED) for name in PROPER], dataset
            ),
            "## The same as expected calibration error, shown only",
            "15 bins of equal width. It is blind to all but the largest probability, and nothing is judged by it.",
            method_table(report, [*_binned(AS_TRAINED), *_binned(FITTED), _temperature()], dataset),
        ]
    if "goodness_of_fit" in measured:
        text += [
            "## Whether classes are Gaussian: squared distances of test features against chi-square",
            "Fitted are means and one variance of each dimension; on the training features themselves their ratio is "
            "1 by construction. Nothing is judged: there is no threshold.",
            method_table(report, [_fit(name, whose) for whose in WHOSE for name in FIT], dataset),
        ]
    return text


def proper(name: str, state: str) -> Column:
    """A proper score of probabilities, as trained or calibrated."""
    title, unit = PROPER[name]
    return Column(f"{title}, {state}", Quantity("", "calibration", name, unit, {"temperature": state}))


def _binned(state: str) -> list[Column]:
    return [
        Column(
            f"{title}, {state}",
            Quantity("", "calibration", name, context={"temperature": state}),
            judged=False,
        )
        for name, title in BINNED.items()
    ]


def _temperature() -> Column:
    return Column("temperature", Quantity("", "calibration", "temperature", "factor"), judged=False)


def _fit(name: str, whose: str) -> Column:
    title, unit = FIT[name]
    quantity = Quantity("", "goodness_of_fit", name, unit, {"statistics": whose, "class": ALL})
    return Column(f"{title}, {WHOSE[whose]}", quantity, judged=False)
