"""The same invention with the audits of a paper's other figures."""

from typing import Any

import numpy as np

from clearance.vocabulary import Exhibit, Measurement
from report.invented import CLASSES, HEADS, SAMPLES, WORLD, Invented

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
        self.parts = audits

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
