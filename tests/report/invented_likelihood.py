"""Invented records of the audits of likelihood, calibration and goodness of fit."""

from typing import Any

from clearance.vocabulary import Better, Exhibit, Measurement, Scalar
from report.invented import Invented

METHODS = {"plain": 0.6, "lgm": 0.9}  # how well the likelihood tells
RADII = (0.1, 0.2, 0.3)
SCORES = ("likelihood", "mahalanobis", "small pixels")
TITLES = {
    "likelihood": "Does a low likelihood detect unfamiliar images?",
    "calibration": "Does its confidence match its accuracy?",
    "goodness_of_fit": "Are the classes Gaussian clouds?",
}


class InventedLikelihood(Invented):
    """Two methods with everything that a page says about likelihoods and probabilities."""

    def __init__(self, parts=tuple(TITLES), seeds=3):
        super().__init__(methods=tuple(METHODS), heads=(), pictures=False, seeds=seeds)
        self.parts = parts

    def scored(self, value, context):
        for name in ("auroc", "aupr", "fpr95"):
            better: Better = "lower" if name == "fpr95" else "higher"
            for score in SCORES:
                yield Measurement("likelihood", name, self.share(value), "fraction", 120, better=better,
                                  context={**context, "score": score})  # fmt: skip

    def likelihood(self, method):
        good = METHODS[method]
        for epsilon in RADII:
            for attack in ("FGSM", "IFGSM"):
                place = {"attack": attack, "epsilon": epsilon}
                yield self.rated("fooled", 0.7, place)
                for counted, negatives in (
                    ("all", "originals"),
                    ("successful", "originals"),
                    ("successful", "noise"),
                ):
                    yield from self.scored(good, {**place, "counted": counted, "negatives": negatives})
                for score in SCORES:
                    yield self.rated("caught", 0.5 * good, {**place, "score": score})
            # the attacked score comes last: no table may take another one for it
            place = {"attack": "adaptive", "epsilon": epsilon, "counted": "successful"}
            for attacked in ("mahalanobis", "likelihood"):
                for negatives in ("noise", "originals"):
                    yield from self.scored(0.3, {**place, "attacked": attacked, "negatives": negatives})
            yield self.rated("evasion", epsilon * 3, {"epsilon": epsilon, "score": "likelihood"})
        for unseen in ("clothes10", "classes left out"):
            yield from self.scored(good, {"unseen": unseen})
        for score in SCORES:
            yield self.rated("rejected", 0.05, {"score": score})

    def rated(self, name, value, context):
        value = self.share(value)
        ends = {"low": max(0.0, value - 0.05), "high": min(1.0, value + 0.05)}
        context = {**context, "interval": "wilson 95 %"}
        return Measurement(
            "likelihood", name, value, "fraction", 100, better="lower", context=context, **ends
        )

    def likelihood_pictures(self, method):
        scores: dict[str, Any] = {"class": ["7"], "taken for": ["7"], "p": [0.4], "likelihood": [-3.0]}
        yield Exhibit("likelihood", "scores", "histogram", scores, "Log-densities.")
        yield Exhibit(
            "likelihood", "thresholds", "histogram", {"score": ["energy"], "threshold": [-9.0]}, "Limits."
        )
        for epsilon in RADII:
            context: dict[str, Scalar] = {"attack": "FGSM", "epsilon": epsilon}
            bars = {"from": [0.0, 0.5], "before": [0.1, 0.9], "after": [0.7, 0.3]}
            yield Exhibit("likelihood", "likelihood", "histogram", bars, "Likelihood.", context)
            yield Exhibit("likelihood", "class mean", "histogram", bars, "Distance.", context)
            yield Exhibit("likelihood", "probability", "histogram", bars, "Probability.", context)
            columns: dict[str, Any] = {"image": [[[[0.0, 1.0], [0.5, 0.2]]]] * 3, "caught": [True, True, False],
                       "class": ["7", "1", "<a>"], "taken for": ["3", "2", "$4$"], "p": [0.01, 0.02, 0.5]}  # fmt: skip
            for score in ("likelihood", "class mean"):
                yield Exhibit(
                    "likelihood", "sheet", "images", columns, "Images.", {**context, "score": score}
                )

    def calibration(self, method):
        for state, factor in (("as trained", 1.0), ("calibrated", 0.7)):
            context = {"temperature": state}
            for name, unit, value in (("nll", "nats", 0.2), ("brier", "squared error", 0.06)):
                yield Measurement("calibration", name, self.jitter(value * factor, 0.1), unit, 450, 0.3,
                                  better="lower", context=context)  # fmt: skip
            for name in ("ece", "ece_debiased"):
                yield Measurement("calibration", name, self.share(0.03 * factor), "fraction", 450, better="lower",
                                  context={**context, "bins": 15, "binning": "equal width"})  # fmt: skip
        yield Measurement("calibration", "temperature", self.jitter(1.4, 0.1), "factor", 2, 0.05)

    def calibration_pictures(self, method):
        for state in ("as trained", "calibrated"):
            columns: dict[str, Any] = {
                "confidence": [0.5, 0.9, 1.0],
                "accuracy": [0.4, 0.8, 1.0],
                "images": [3, 30, 400],
            }
            yield Exhibit(
                "calibration", "reliability", "curve", columns, "Right over sure.", {"temperature": state}
            )

    def goodness_of_fit(self, method):
        for statistics in ("refitted", *(("own",) if method == "lgm" else ())):
            for name in ("all", "0", "1"):
                context = {"statistics": statistics, "class": name}
                yield Measurement("goodness_of_fit", "distance_ratio", self.jitter(1.3, 0.1), "ratio", 45, 0.4,
                                  context=context)  # fmt: skip
                for what in ("ks_distance", "coverage"):
                    yield Measurement(
                        "goodness_of_fit", what, self.share(0.4), "fraction", 45, context=context
                    )

    def goodness_of_fit_pictures(self, method):
        for statistics in ("refitted", *(("own",) if method == "lgm" else ())):
            columns = {"chi-square": [0.2, 0.9, 2.0], "features": [0.1, 0.9, 3.5]}
            yield Exhibit(
                "goodness_of_fit", "quantiles", "curve", columns, "Quantiles.", {"statistics": statistics}
            )
