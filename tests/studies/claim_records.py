"""Claims in small, and records made up to bring about each verdict on them."""

import dataclasses
from importlib import resources

import numpy as np

from clearance.records.record import Record
from clearance.vocabulary import Measurement
from papers.engine.claims import parse_claims
from papers.engine.judging import MINIMUM_SEEDS, judge

FOLDER = resources.files("papers.sato_2019")
SATO = parse_claims(FOLDER.joinpath("claims.toml").read_text("utf-8"))
SHEET = ["T1", "T2", "A1", "A2", "A3", "A4", "A5", "A6", "G1", "G2", "G3", "G4", "P1", "P2", "F1",
         "W1", "W2", "W3", "W4", "L3.1", "L3.2"]  # fmt: skip

CLAIM = """
paper = "x-2020"
reference = ""
method = "foca"
rivals = ["plain", "dropout"]
[[claim]]
id = "A"
kind = "KIND"
words = "Fewest errors."
value = ""
where = "Fig. 1"
datasets = ["digits"]
reading = [READING]
"""

LOWER = '{is = "lower", audit = "co_adaptation", measure = "error", context = {samples = SAMPLES}EXTRA}'


def one_claim(samples="10", kind="order", extra=""):
    reading = LOWER.replace("SAMPLES", samples).replace("EXTRA", extra)
    return parse_claims(CLAIM.replace("KIND", kind).replace("READING", reading))


def series(audit, name, context, methods, dataset="digits", seeds=MINIMUM_SEEDS, noise=0.01):
    """Records of one quantity: a number by method, with a little noise that differs by seed and method."""
    drawn = np.random.default_rng(len(name) + len(context))
    return [
        Record(
            dataset, method, seed, Measurement(audit, name, value * (1 + noise * drawn.standard_normal()),
                                               "fraction", n=10, context=context),
        )
        for method, value in methods.items()
        for seed in range(seeds)
    ]  # fmt: skip


def errors(samples=10, seeds=MINIMUM_SEEDS, **methods):
    return series("co_adaptation", "error", {"head": "retrained", "samples": samples}, methods, seeds=seeds)


def verdict(claims, records, dataset="digits"):
    (found,) = judge(claims, records, dataset)
    return found.verdict, found.reason


def replaced(records, method, value):
    """The same records with every number of one method replaced (a little different for each seed)."""
    return [
        dataclasses.replace(r, measurement=dataclasses.replace(r.measurement, value=value + 1e-4 * r.seed))
        if r.method == method
        else r
        for r in records
    ]
