"""Invented measurements for the report's tests: realistic in shape, true of nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clearance.records.record import ExhibitRecord, Record, RunNote
from clearance.records.store import Report
from clearance.vocabulary import Exhibit, Measurement, Outcome

CLASSES = [str(digit) for digit in range(10)]
SAMPLES = (10, 100, 500, 1347)
REPETITIONS = (150, 50, 15, 1)
# error with own head, error of a head rebuilt from one image per class, seconds, separation in the picture
WORLD = {
    "plain": (0.026, 0.182, 4.1, 1.6),
    "dropout": (0.024, 0.149, 5.2, 1.8),
    "batchnorm": (0.020, 0.088, 6.0, 2.4),
    "foca": (0.022, 0.033, 11.3, 4.5),
}
HEADS = {"retrained": 1.0, "linear": 0.95, "class mean": 0.8, "class mean, unit length": 0.75}


class Invented:
    """Builds a report of made-up numbers; nothing in it was ever measured."""

    def __init__(self, methods=tuple(WORLD), seeds=3, dataset="digits", heads=tuple(HEADS), pictures=True):
        self.methods, self.seeds, self.dataset = methods, seeds, dataset
        self.heads, self.pictures = heads, pictures
        self.rng = np.random.default_rng(0)

    def jitter(self, value, relative):
        return float(value * np.exp(relative * self.rng.standard_normal()))

    def accuracy(self, own):
        for split, value, count in (("test", own, 450), ("train", own / 20, 1347)):
            value = round(value * count) / count
            half = 1.96 * (value * (1 - value) / count) ** 0.5
            context = {"split": split, "interval": "wilson 95 %"}
            yield Measurement(
                "accuracy", "error", value, "fraction", count,
                low=max(0.0, value - half), high=value + half + 0.004, better="lower", context=context,
            )  # fmt: skip

    def co_adaptation(self, own, few):
        for head in self.heads:
            factor = HEADS[head]
            for samples, count in zip(SAMPLES, REPETITIONS, strict=True):
                share = (np.log(1347) - np.log(samples)) / (np.log(1347) - np.log(10))
                value = self.jitter(own * (few * factor / own) ** share, 0.03)
                context: dict[str, Any] = {"head": head, "samples": samples}
                rest: dict[str, Any] = {"better": "lower", "context": context}
                yield Measurement(
                    "co_adaptation", "error", value, "fraction", count,
                    spread=value * 0.2 if count > 1 else None, **rest,
                )  # fmt: skip
                yield Measurement("co_adaptation", "gap", value - own, "fraction", count, **rest)
                yield Measurement("co_adaptation", "diverged_heads", 0, "count", count, **rest)
                yield Measurement("co_adaptation", "unfitted_heads", 0, "count", count, **rest)
        for samples, value in zip(SAMPLES, (0.42, 0.16, 0.05, 0.022), strict=True):
            context = {"head": "nearest pixel", "samples": samples}
            yield Measurement("co_adaptation", "error", value, "fraction", 1, better="lower", context=context)

    def scatter(self, separation):
        for split in ("train", "test"):
            for name, factor in (("within_between", 0.6), ("cdnv", 0.4), ("nc1", 2.1)):
                value = self.jitter(factor / separation**2, 0.05)
                context = {"split": split}
                yield Measurement("class_scatter", name, value, "ratio", 45, better="lower", context=context)

    def training(self, seconds):
        yield Measurement("training", "seconds", self.jitter(seconds, 0.03), "seconds", 1, better="lower")
        yield Measurement("training", "steps", 900, "count", 1)

    def exhibits(self, separation):
        angles = np.arange(10) * 2 * np.pi / 10
        label = np.repeat(np.arange(10), 24)
        x = separation * np.cos(angles)[label] + 0.45 * self.rng.standard_normal(240)
        y = separation * np.sin(angles)[label] + 0.45 * self.rng.standard_normal(240)
        names = [CLASSES[index] for index in label]
        columns: dict[str, Any] = {"x": x.round(4).tolist(), "y": y.round(4).tolist(), "label": names}
        yield Exhibit("class_scatter", "features", "scatter", columns, "Test features, first two directions.")
        step = np.arange(0, 901, 20)
        loss = 2.3 * np.exp(-step / 180) + 0.03 + 0.02 * self.rng.random(len(step))
        error = [None, *(0.9 * np.exp(-step[1:] / 120) + 0.01 * self.rng.random(len(step) - 1)).tolist()]
        columns = {"step": step.tolist(), "loss": loss.tolist(), "error": error}
        yield Exhibit("training", "curve", "curve", columns, "Loss and error on the training batches.")

    def report(self):
        records, exhibits, runs = [], [], []
        for seed in range(self.seeds):
            for method in self.methods:
                own, few, seconds, separation = WORLD.get(method, WORLD["plain"])
                own, few = self.jitter(own, 0.1), self.jitter(few, 0.08)
                parts = (self.accuracy(own), self.co_adaptation(own, few), self.scatter(separation))
                found = [one for part in (*parts, self.training(seconds)) for one in part]
                records += [Record(self.dataset, method, seed, one) for one in found]
                shown = self.exhibits(separation) if self.pictures else ()
                exhibits += [ExhibitRecord(self.dataset, method, seed, one) for one in shown]
                runs.append(RunNote(method, seed, Outcome.FINISHED, "finished at step 900"))
        records.sort(key=lambda record: self.methods.index(record.method))
        return Report(
            recipe={"dataset": self.dataset, "epochs": 20, "note": "invented numbers, for tests only"},
            versions={"clearance": "0.1.0", "torch": "2.13.0"},
            command=f"clearance compare --data {self.dataset} --seeds {self.seeds}",
            created="2026-01-01T00:00:00+00:00",
            records=tuple(records),
            exhibits=tuple(exhibits),
            runs=tuple(runs),
        )


# How far last layers move, how far one line sets a class apart, and the share of a class's spread on one axis.
PAPER = {
    "plain": (12.0, 6.0, 0.3),
    "noisy": (9.0, 7.5, 0.32),
    "dropout": (8.0, 6.2, 0.31),
    "batchnorm": (5.0, 7.6, 0.4),
    "foca": (0.2, 80.0, 0.82),
}
METRICS = {("empirical", "as trained"): 1.0, ("model", "as trained"): 1.4, ("euclidean", "as trained"): 2.0}
METRICS |= {("empirical", "calibrated"): 0.8}
NOT_ON_THE_PAPER_S_PATH = ("neural_collapse", "churn", "new_classes")
AUDITS = ("geodesic", "low_dimension", "deeper_cut", *NOT_ON_THE_PAPER_S_PATH)


class InventedPaper(Invented):
    """The same with the audits of the paper's other figures, and those that the paper does not have."""

    def __init__(self, audits=AUDITS, **rest):
        super().__init__(**rest)
        self.audits = audits

    def measured(self, audit, name, value, unit, context, n=3, better="lower", relative=0.06):
        return Measurement(audit, name, self.jitter(value, relative), unit, n, better=better, context=context)

    def geodesic(self, method):
        far = PAPER[method][0]
        for (metric, temperature), factor in METRICS.items():
            # By plain distance of weights the order of methods is another one.
            value = (20 if method == "foca" else 10) if metric == "euclidean" else far * factor
            for features in ("rms", "raw") if temperature == "as trained" else ("rms",):
                for layer, share in (("1", 0.9), ("2", 0.5), ("3", 0.3), ("all", 1.07)):
                    context = {
                        "metric": metric,
                        "layer": layer,
                        "features": features,
                        "temperature": temperature,
                    }
                    unit = "ratio" if metric == "euclidean" else "nats"
                    yield self.measured("geodesic", "distance", value * share, unit, context)
                    yield self.measured("geodesic", "length", 3 * value * share, unit, context)
        for features in ("rms", "raw"):
            context = {"features": features, "temperature": "as trained"}
            rise = 0.02 * far
            yield self.measured("geodesic", "path_error_rise", rise, "fraction", context)
            yield self.measured("geodesic", "worst_path_error", 1.2 * rise, "fraction", context)
            yield Measurement(
                "geodesic", "diverged_heads", 0, "count", 3, better="lower", context={"features": features}
            )

    def low_dimension(self, method):
        _, ratio, share = PAPER[method]
        for name in CLASSES:
            for eps in (1e-3, *((1e-8, 1e-5, 1e-1) if name == "0" else ())):
                for split, factor in (("train", 1.6), ("test", 1.0)):
                    context = {"class": name, "regulariser": eps, "split": split}
                    value = ratio * factor * (1e-3 / eps) ** 0.1
                    yield self.measured(
                        "low_dimension", "lda_eigenvalue", value, "ratio", context, better="higher"
                    )
            for chosen, factor in (("test", 1.0), ("train", 1.4)):
                context = {"class": name, "regulariser": 1e-3, "chosen_on": chosen}
                yield self.measured(
                    "low_dimension", "threshold_error", factor * 0.06 / ratio**0.5, "fraction", context
                )
            yield self.measured(
                "low_dimension",
                "first_axis_share",
                share,
                "fraction",
                {"class": name},
                better="higher",
                relative=0.02,
            )
        yield self.measured(
            "low_dimension",
            "first_axis_share",
            share,
            "fraction",
            {"class": "mean"},
            better="higher",
            relative=0.02,
        )
        yield self.measured("low_dimension", "effective_rank", 9.0, "count", {"class": "all"})
        yield self.measured("low_dimension", "effective_rank", 3.0 / share, "count", {"class": "mean"})

    def deeper_cut(self, method):
        own, few, *_ = WORLD.get(method, WORLD["plain"])
        for head, factor in HEADS.items():
            for samples, part in zip(SAMPLES, (1.0, 0.4, 0.1, 0.0), strict=True):
                value = own + part * (0.8 * few * factor - own)
                context = {"head": head, "samples": samples, "cut": 1}
                yield self.measured("deeper_cut", "error", value, "fraction", context, n=50)
                yield self.measured("deeper_cut", "gap", value - own, "fraction", context, n=50)

    def neural_collapse(self, method):
        separation = WORLD.get(method, WORLD["plain"])[3]
        for split in ("test", "train"):
            for name in ("nc1", "nc2_equinorm", "nc2_equiangle", "nc2_simplex"):
                yield self.measured("neural_collapse", name, 0.5 / separation, "ratio", {"split": split})
            yield self.measured("neural_collapse", "nc4", 0.01, "fraction", {"split": split})
            yield self.measured("neural_collapse", "effective_rank", 10.5, "count", {"split": split})
        yield self.measured(
            "neural_collapse", "nc3", 0.6, "ratio", {"split": "train", "head": "fresh linear"}
        )

    def churn(self, method):
        few = WORLD.get(method, WORLD["plain"])[1]
        for samples in (10, 100):
            for differ in ("first weights", "images"):
                context = {"samples": samples, "differ_in": differ}
                value = 0.5 * few * 10 / samples
                yield self.measured("churn", "disagreement", value, "fraction", context, n=10)
                yield self.measured("churn", "worst_class_disagreement", 2 * value, "fraction", context, n=10)

    def new_classes(self, method):
        few = WORLD.get(method, WORLD["plain"])[1]
        for head, factor in (*HEADS.items(), ("nearest pixel", 2.0)):
            for count in (1, 5, 20):
                value = (0.4 if head == "nearest pixel" else 0.2 + few) * factor / count**0.5
                context = {"head": head, "per_class": count}
                yield self.measured("new_classes", "error", min(value, 0.8), "fraction", context, n=50)

    def geodesic_pictures(self, method):
        far = PAPER[method][0]
        position = list(range(16))
        for features in ("rms", "raw"):
            context = {"features": features, "temperature": "as trained"}
            error = [self.jitter(0.03 + 0.02 * far * (k / 15) ** 2, 0.03) for k in position]
            columns: dict[str, Any] = {"position": position, "error": error}
            yield Exhibit("geodesic", "path_error", "curve", columns, "Test error on the way.", context)
            columns = {"segment": position[1:]}
            for layer in (1, 2, 3):
                columns[f"layer {layer}"] = [self.jitter(far / layer / (16 - k), 0.1) for k in position[1:]]
            yield Exhibit("geodesic", "segments", "curve", columns, "Each segment.", context)

    def low_dimension_pictures(self, method):
        _, ratio, share = PAPER[method]
        axis = list(range(1, 31))
        spectrum = [share * (1 - share) ** (k - 1) + 1e-6 for k in axis]
        columns: dict[str, Any] = {"axis": axis, "all features": spectrum, "within a class (mean)": spectrum}
        context: dict[str, Any] = {"split": "test"}
        yield Exhibit("low_dimension", "spectrum", "curve", columns, "Spectrum.", context)
        rows = np.repeat(np.arange(10), 24)
        x = (rows == 0) * 1.0 + self.rng.standard_normal(240) / ratio**0.5
        label = ["0" if row == 0 else "other classes" for row in rows]
        columns = {"x": x.round(4).tolist(), "y": rows.tolist(), "label": label}
        yield Exhibit(
            "low_dimension", "lda", "scatter", columns, "The line.", {"class": "0", "split": "test"}
        )
        angle = 2 * np.pi * rows / 10
        along, across = self.rng.gamma(4, 1, 240), (1 - share) * self.rng.standard_normal((2, 240))
        x, y = along * np.cos(angle) + across[0], along * np.sin(angle) + across[1]
        columns = {
            "x": x.round(4).tolist(),
            "y": y.round(4).tolist(),
            "label": [CLASSES[row] for row in rows],
        }
        yield Exhibit("low_dimension", "plane", "scatter", columns, "The plane.", {"split": "train"})

    def report(self):
        report = super().report()
        records, exhibits = list(report.records), list(report.exhibits)
        for method in self.methods:
            for seed in range(self.seeds):
                for audit in self.audits:
                    found = getattr(self, audit)(method)
                    records += [Record(self.dataset, method, seed, one) for one in found]
                    shown = getattr(self, f"{audit}_pictures", lambda _: ())(method)
                    exhibits += [ExhibitRecord(self.dataset, method, seed, one) for one in shown]
        return replace(report, records=tuple(records), exhibits=tuple(exhibits))


@pytest.fixture(scope="session")
def paper():
    """Two methods, three seeds, every audit, made up."""
    return InventedPaper(
        methods=("plain", "foca"), heads=("retrained", "class mean"), pictures=False
    ).report()


@pytest.fixture
def invented():
    """`Invented(...)`, to build a report of made-up numbers from."""
    return Invented


@pytest.fixture(scope="session")
def comparison():
    """Four methods, three seeds, made up."""
    return Invented().report()


@pytest.fixture(scope="session")
def lean():
    """Two methods, one way to rebuild the last layers, no pictures but the curve: quick to draw."""
    return Invented(methods=("plain", "foca"), heads=("retrained",), pictures=False).report()


@pytest.fixture(scope="session")
def single():
    """One network, made up."""
    return Invented(methods=("model",), seeds=1).report()
