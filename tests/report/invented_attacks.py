"""Invented records of the audits under attack, of distances, and of training with wrong labels."""

from typing import Any

from clearance.vocabulary import Exhibit, Measurement
from report.invented import Invented

RADII = {"inf": (0.1, 0.2), "2": (0.5,)}
# Right under attack at the first radius, what plain attacks leave of it, median distance.
ATTACKED = {"plain": (0.41, 0.93, 0.11), "large-margin": (0.63, 0.66, 0.19)}
REASONS = (
    ("plain attacks", "cross-entropy attacks miss {} of images that others break"),
    ("verdict", "{} of images have no gradient"),
)
PARTS = ("robustness", "boundary_distance", "epochs")
TITLES = {
    "epochs": "Epoch by epoch",
    "robustness": "Accuracy under attack",
    "boundary_distance": "Distance to the decision boundary",
}


class InventedAttacks(Invented):
    """Two methods with everything that a page says about attacks, distances and epochs."""

    def __init__(self, parts=PARTS, alarmed=True, rates=(None,), seeds=3, transfer=True):
        super().__init__(methods=tuple(ATTACKED), heads=(), pictures=False, seeds=seeds)
        self.parts, self.alarmed, self.rates, self.transfer = parts, alarmed, rates, transfer

    def rated(self, audit, name, value, context, better="higher"):
        ends = {"low": max(0.0, value - 0.05), "high": min(1.0, value + 0.05)}
        context = {**context, "interval": "wilson 95 %"}
        return Measurement(audit, name, value, "fraction", 450, better=better, context=context, **ends)

    def robustness(self, method):
        right, plain, _ = ATTACKED[method]
        for loss in ("logit_margin", "cross_entropy"):
            yield Measurement("robustness", "zero_gradients", self.share(0.02), "fraction", 440,
                              better="lower", context={"loss": loss})  # fmt: skip
        for norm, radii in RADII.items():
            yield Measurement("robustness", "full_radius_accuracy", self.share(0.004), "fraction", 450,
                              better="lower", context={"norm": norm})  # fmt: skip
            for k, epsilon in enumerate(radii):
                context: dict[str, Any] = {"norm": norm, "epsilon": epsilon}
                shares = {"robust_accuracy": right / (1 + k), "cross_entropy_attack_accuracy": plain / (1 + k),
                          "noise_accuracy": 0.96, "transfer_accuracy": 0.91}  # fmt: skip
                if not self.transfer:
                    del shares["transfer_accuracy"]
                for name, value in shares.items():
                    yield self.rated("robustness", name, self.share(value), context)
                count = 2 if self.alarmed and method == "plain" else 0
                yield Measurement(
                    "robustness", "alarms", count, "count", 450, better="lower", context=context
                )

    def robustness_pictures(self, method):
        right, plain, _ = ATTACKED[method]
        for norm, radii in RADII.items():
            falling = [0.97, *(right / (1 + k) for k in range(len(radii)))]
            columns: dict[str, Any] = {"radius": [0.0, *radii], "worst case": falling,
                       "noise": [0.97] * (1 + len(radii)),
                       "cross-entropy attacks": [0.97, *(plain / (1 + k) for k in range(len(radii)))]}  # fmt: skip
            yield Exhibit("robustness", "under_attack", "curve", columns, "Share.", {"norm": norm})
            if self.alarmed and method == "plain":
                rows = [(epsilon, *reason) for epsilon in radii for reason in REASONS]
                shares = [self.share(0.3) for _ in rows]
                alarms: dict[str, Any] = {"radius": [row[0] for row in rows], "about": [row[1] for row in rows],
                        "reason": [row[2] for row in rows], "share": shares}  # fmt: skip
                yield Exhibit(
                    "robustness", "alarms", "curve", alarms, "What speaks against it.", {"norm": norm}
                )

    def boundary_distance(self, method):
        far = ATTACKED[method][2]
        for norm in RADII:
            for name in ("all", "0", "1"):
                context = {"norm": norm, "class": name}
                yield Measurement("boundary_distance", "minimum_distance", self.jitter(far, 0.1),
                                  "pixel units", 200, better="higher", context=context)  # fmt: skip
                for layer in ("input", "features", "extractor.2"):
                    unit = "pixel units" if layer == "input" else "ratio"
                    yield Measurement("boundary_distance", "first_order_distance", self.jitter(2 * far, 0.1),
                                      unit, 450, better="higher", context={**context, "layer": layer})  # fmt: skip

    def boundary_distance_pictures(self, method):
        for norm in RADII:
            columns: dict[str, Any] = {"x": [0.1, 0.2, -0.1], "y": [0.1, 0.15, 0.0], "label": ["0", "1", "1"]}
            yield Exhibit("boundary_distance", "distances", "scatter", columns, "Found.", {"norm": norm})

    def epochs(self, method):
        for rate in self.rates:
            extra = {} if rate is None else {"noise": rate}
            context = {"chosen_on": "validation", **extra}
            yield Measurement("training", "early_stopped_error", self.share(0.05), "fraction", 450,
                              better="lower", context=context)  # fmt: skip
            yield Measurement("training", "early_stopped_epoch", 2, "count", 4, context=context)
            if rate is not None:
                yield self.rated("accuracy", "error", self.share(0.1), {"split": "test", **extra}, "lower")

    def epochs_pictures(self, method):
        for rate in self.rates:
            columns = {
                "epoch": [1, 2, 3, 4],
                "validation error": [self.share(value) for value in (0.5, 0.4, 0.42, 0.44)],
                "test error": [self.share(value) for value in (0.2, 0.05, 0.08, 0.1)],
            }
            context = {} if rate is None else {"noise": rate}
            yield Exhibit("training", "epochs", "curve", columns, "Errors after every epoch.", context)
