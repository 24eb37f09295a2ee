"""Invented measurements for the report's tests: realistic in shape, true of nothing."""

from typing import Any

import numpy as np

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
    """Builds a report of made-up numbers; nothing in it was ever measured. Subclasses add parts by name."""

    parts: tuple[str, ...] = ()

    def __init__(self, methods=tuple(WORLD), seeds=3, dataset="digits", heads=tuple(HEADS), pictures=True):
        self.methods, self.seeds, self.dataset = methods, seeds, dataset
        self.heads, self.pictures = heads, pictures
        self.rng = np.random.default_rng(0)

    def jitter(self, value, relative):
        return float(value * np.exp(relative * self.rng.standard_normal()))

    def share(self, value):
        return round(min(self.jitter(value, 0.04), 1.0), 6)

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
        memory = self.jitter(300 + 10 * seconds, 0.01)
        yield Measurement("training", "memory", memory, "MiB", 1, better="lower")

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
        columns = {"step": step.tolist(), "loss": loss.tolist()}
        yield Exhibit("training", "curve", "curve", columns, "Loss on the training batches.")

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
        for method in self.methods:
            for seed in range(self.seeds):
                for part in self.parts:
                    records += [
                        Record(self.dataset, method, seed, one) for one in getattr(self, part)(method)
                    ]
                    shown = getattr(self, f"{part}_pictures", lambda _: ())(method)
                    exhibits += [ExhibitRecord(self.dataset, method, seed, one) for one in shown]
        return Report(
            recipe={"dataset": self.dataset, "epochs": 20, "note": "invented numbers, for tests only"},
            versions={"clearance": "0.1.0", "torch": "2.13.0"},
            command=f"clearance compare --data {self.dataset} --seeds {self.seeds}",
            created="2026-01-01T00:00:00+00:00",
            records=tuple(records),
            exhibits=tuple(exhibits),
            runs=tuple(runs),
        )
