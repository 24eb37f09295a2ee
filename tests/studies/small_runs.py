"""What the tests of studies share: grids in this process, ledgers read back, and files in the formats of datasets."""

import dataclasses
import gzip
import itertools
import json
import math
import struct

import numpy as np
from PIL import Image

from clearance.experiments.build import RunData
from clearance.experiments.method import FOCASettings
from clearance.experiments.run import run_method

T_97_5 = {2: 12.7062047, 3: 4.3026527}  # Student's t for that many seeds, from a printed table


def grid_here(noted, *, stop_after=None, broken=()):
    """A grid in this process that notes its plans; it may be interrupted, or lose some (method, seed)."""
    from clearance.experiments.run import failed, kept_findings

    def run_grid(plans, data, directory, engine, listener, on_result=lambda _: None):
        found = []
        images = [data] * len(plans) if isinstance(data, RunData) else data
        for plan, own in zip(plans, images, strict=True):
            if (kept := kept_findings(plan, own, directory)) is not None:
                found.append(kept)
                continue
            if (plan.method, plan.seed) in broken:
                found.append(failed(plan, "boom"))
                continue
            if stop_after is not None and len(noted) == stop_after:
                raise KeyboardInterrupt
            noted.append(plan)
            found.append(run_method(plan, own, directory, own_process=True))
            on_result(dict(enumerate(found)))
        return found

    return run_grid


def grids_here(patch, noted, **how):
    """Let studies run their grids in this process (see grid_here); what training adds to memory is made up."""
    for place in ("study", "kept"):
        patch.setattr(f"papers.engine.{place}.run_grid", grid_here(noted, **how))
    patch.setattr("clearance.experiments.run.PeakMemory", Counted)


def with_changes(method, **changes):
    """The method with other settings; those of FOCA alone change nothing in another way of training."""
    unused = () if method.way == "foca" else vars(FOCASettings())
    kept = {name: value for name, value in changes.items() if name not in unused}
    return dataclasses.replace(method, **kept)


class Unrendered:
    """A card that writes its report and draws no page, which takes longer than small runs."""

    def __init__(self, report):
        self.report = report

    def save_folder(self, out):
        """Write the report."""
        self.report.save(out)


class Counted:
    """Stands in for the memory that training adds: another number of MiB each time, none of them 0."""

    numbers = itertools.count(10)

    def added(self):
        """The next number."""
        return float(next(self.numbers))


def stored(out, plans):
    """Every measurement on disk: {(method, seed): [rows of findings.json]}."""
    found = {}
    for plan in plans:
        tree = json.loads((out / "runs" / plan.folder / "findings.json").read_text("utf-8"))
        found[plan.method, plan.seed] = tree["records"]
    return found


def number(rows, audit, name, **context):
    """The one measurement of these rows with this name and these settings."""
    (value,) = [
        row["value"]
        for row in rows
        if (row["audit"], row["name"]) == (audit, name)
        and all(row["context"].get(key) == wanted for key, wanted in context.items())
    ]
    return value


def interval(values):
    """Mean and 95 % t interval, by hand."""
    count = len(values)
    mean = sum(values) / count
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    half = T_97_5[count] * spread / math.sqrt(count)
    return mean, mean - half, mean + half


def verdict(low, high):
    """Of an error: lower is better."""
    return "inconclusive" if low <= 0 <= high else "better" if high < 0 else "worse"


def ledger_rows(out):
    """The rows of ledger.json by label and method."""
    ledger = json.loads((out / "ledger.json").read_text("utf-8"))
    return {(row["label"], row["method"]): row for row in ledger["rows"]}


def cells(out):
    """The cells of every table of ledger.md: {row: {column: text}}."""
    found: dict[str, dict[str, str]] = {}
    header: list[str] = []
    for line in (out / "ledger.md").read_text("utf-8").splitlines():
        if not line.startswith("|"):
            header = []
            continue
        parts = [part.strip() for part in line.strip("|").split("|")]
        if not header:
            header = parts
        elif not parts[0].startswith("---"):
            found[parts[0]] = dict(zip(header[1:], parts[1:], strict=True))
    return found


def write_idx(folder, stem, count):
    """Images of 28 x 28 with their labels, in MNIST's format; a class is a bright row."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(count, dtype=np.uint8) % 10
    images = np.random.default_rng(0).integers(0, 60, (count, 28, 28), dtype=np.uint8)
    images[np.arange(count), 2 * labels + 4] = 255
    content = struct.pack(">4I", 2051, count, 28, 28) + images.tobytes()
    (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    content = struct.pack(">2I", 2049, count) + labels.tobytes()
    (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


def write_photographs(folder):
    """Ten folders of six pictures of 40 x 30."""
    draw = np.random.default_rng(1)
    for label in range(10):
        (folder / str(label)).mkdir(parents=True)
        for k in range(6):
            pixels = draw.integers(0, 256, (30, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / str(label) / f"{k}.png")
