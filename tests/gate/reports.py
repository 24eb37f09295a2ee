"""Reports of invented models, for the gate to rule on."""

import numpy as np

from clearance.records import ExhibitRecord, Record, Report
from clearance.vocabulary import Exhibit, Measurement


def error(value, seed=0, method="mine", n=1000, split="test"):
    found = Measurement("accuracy", "error", value, "fraction", n, better="lower", context={"split": split})
    return Record("pets", method, seed, found)


def wrong_images(values, seed=0, images="aa", method="mine", **context):
    shown = Exhibit(
        "accuracy",
        "error",
        "per_image",
        {"value": list(values)},
        "Which.",
        {"split": "test", "images": images, **context},
    )
    return ExhibitRecord("pets", method, seed, shown)


def distance(value, seed=0, norm="inf"):
    context = {"norm": norm}
    found = Measurement(
        "minimal_perturbation", "median_flip", value, "pixel units", 200, better="higher", context=context
    )
    return Record("pets", "mine", seed, found)


def robustness(value, seed=0, epsilon=0.1):
    context = {"norm": "inf", "epsilon": epsilon}
    found = Measurement(
        "robustness", "robust_accuracy", value, "fraction", 200, better="higher", context=context
    )
    return Record("pets", "mine", seed, found)


def distances(values, seed=0, images="aa", steps=100):
    context = {"norm": "inf", "steps": steps, "images": images, "statistic": "median"}
    shown = Exhibit(
        "minimal_perturbation", "median_flip", "per_image", {"value": list(values)}, "How far.", context
    )
    return ExhibitRecord("pets", "mine", seed, shown)


def report(*rows):
    return Report(
        {},
        {},
        "clearance audit",
        "2026-01-01T00:00:00+00:00",
        records=tuple(row for row in rows if isinstance(row, Record)),
        exhibits=tuple(row for row in rows if isinstance(row, ExhibitRecord)),
    )


def of_images(wrong, images="aa", seed=0):
    """A report of one model that keeps which images are wrong."""
    return report(error(float(np.mean(wrong)), seed), wrong_images(wrong, seed, images))
