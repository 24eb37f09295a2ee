"""How often `clearance check` fails an honest retraining, and how often it finds a real drop.

    python benchmarks/gate_errors.py --root MNIST --out gate-errors      # 10 minutes of one core; resumes
    python benchmarks/gate_errors.py --out gate-errors --table           # of what is there

A model is a network of one hidden layer, trained on MNIST. Honest pairs differ by the seed alone, which draws first
weights and the order of images. The newer model of a worse pair was trained on fewer images: how few was chosen before,
with other seeds, on images that are neither trained nor tested on. Every pair has its own draw of test images, the same
for both models. What is counted are results of `clearance.gate.check` on reports of the library's own audits; those on
other numbers of images are of the accuracy alone.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from scipy.stats import beta
from torch import nn

from clearance import load_dataset
from clearance.audits import Accuracy, Audit, Calibration, MinimalPerturbation, Subject
from clearance.data import ImageSet
from clearance.gate import Tolerance, check
from clearance.models import Classifier
from clearance.records import ExhibitRecord, Record, Report

HONEST, WORSE = 200, 60  # pairs
DROPS = (0.02, 0.03, 0.05)
TRAINED, KEPT_BACK = 10_000, slice(50_000, 60_000)
CANDIDATES = (5000, 4000, 3200, 2500, 2000, 1600, 1250, 1000, 800, 630, 500)
CHOICE_SEEDS = range(90_000, 90_008)
IMAGES, FLIPPED = 2000, 100
OTHER_IMAGES = (500, 5000)
ASKED = {
    "accuracy": ("accuracy drops", "accuracy drops 0.5pt", "accuracy drops 1pt", "accuracy drops 2pt"),
    "overconfidence": ("overconfidence rises", "overconfidence rises 0.5pt", "overconfidence rises 1pt"),
    "flip_distance": ("flip_distance drops 0%", "flip_distance drops 5%", "flip_distance drops 10%"),
}


def trained(train: ImageSet, seed: int, count: int = TRAINED) -> Classifier:
    """A network of 64 hidden units: 4 epochs of SGD with momentum, the rate falling to 0."""
    order = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    pixels, labels = (train.images[:count].flatten(1) - 0.1307) / 0.3081, train.labels[:count]
    hidden, last = nn.Linear(784, 64), nn.Linear(64, 10)
    net = nn.Sequential(hidden, nn.ReLU(), last)
    batches = [rows for _ in range(4) for rows in torch.randperm(count, generator=order).split(64)]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, len(batches))
    for rows in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(pixels[rows]), labels[rows]).backward()
        optimizer.step()
        schedule.step()
    return Classifier(nn.Sequential(nn.Flatten(), hidden, nn.ReLU()), last, 0.1307, 0.3081).eval()


def accuracy(model: Classifier, data: ImageSet) -> float:
    with torch.no_grad():
        return float((model(data.images).argmax(dim=1) == data.labels).double().mean())


def chosen_counts(train: ImageSet) -> dict[float, int]:
    """For each drop, the number of training images that comes nearest to it on images kept back."""
    kept = train.subset(torch.arange(len(train))[KEPT_BACK])
    means = {
        count: sum(accuracy(trained(train, seed, count), kept) for seed in CHOICE_SEEDS) / len(CHOICE_SEEDS)
        for count in (TRAINED, *CANDIDATES)
    }
    return {drop: min(CANDIDATES, key=lambda n: abs(means[TRAINED] - means[n] - drop)) for drop in DROPS}


def report(model: Classifier, train: ImageSet, test: ImageSet, audits: tuple[Audit, ...]) -> Report:
    subject = Subject(model, train, test)
    found = [audit.examine(subject) for audit in audits]
    where = ("mnist", "model", 0)
    return Report(
        {}, {}, "", "",
        records=tuple(Record(*where, m) for f in found for m in f.measurements),
        exhibits=tuple(ExhibitRecord(*where, e) for f in found for e in f.exhibits if e.kind == "per_image"),
    )  # fmt: skip


def intervals(older: Report, newer: Report, quantities: Iterable[str]) -> dict[str, list[float | None]]:
    """Of each quantity the interval that decides: a tolerance is broken where all of it lies beyond."""
    found = check(newer, older, [Tolerance.parse(ASKED[name][0]) for name in quantities])
    return {name: [ruling.low, ruling.high] for name, ruling in zip(quantities, found, strict=True)}


def pair(train: ImageSet, test: ImageSet, number: int, drop: float, count: int) -> dict[str, Any]:
    """Two models, and what the gate says of them."""
    older = trained(train, 2 * number)
    newer = trained(train, 2 * number + 1, count)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(number))
    few = train.subset(torch.arange(100))
    every = (Accuracy(), Calibration(), MinimalPerturbation(images=FLIPPED, steps=20, queries=10))
    found = {}
    for images in (IMAGES, *OTHER_IMAGES):
        part = test.subset(order[:images])
        audits, names = (
            (every, tuple(ASKED)) if drop == 0 and images == IMAGES else (every[:1], ("accuracy",))
        )
        found[str(images)] = intervals(
            report(older, few, part, audits), report(newer, few, part, audits), names
        )
    true = accuracy(older, test) - accuracy(newer, test)
    return {"pair": number, "drop": drop, "true": true, "intervals": found}


def planned(counts: dict[float, int]) -> Iterator[tuple[int, float, int]]:
    """Pairs of all kinds in turn, so that what is there at any time is of every kind."""
    for number in range(HONEST):
        yield number, 0.0, TRAINED
        if number < WORSE:
            for k, drop in enumerate(DROPS):
                yield 10_000 * (k + 1) + number, drop, counts[drop]


def measure(root: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    train, test = (load_dataset("mnist", split=split, root=root) for split in ("train", "test"))
    kept = out / "counts.json"
    if not kept.exists():
        kept.write_text(json.dumps({str(drop): count for drop, count in chosen_counts(train).items()}))
    counts = {float(drop): count for drop, count in json.loads(kept.read_text()).items()}
    done = {(row["pair"], row["drop"]) for row in rows(out)}
    with (out / "pairs.jsonl").open("a") as file:
        for number, drop, count in planned(counts):
            if (number, drop) not in done:
                file.write(json.dumps(pair(train, test, number, drop, count)) + "\n")
                file.flush()


def rows(out: Path) -> list[dict[str, Any]]:
    """The pairs so far; a line that was cut is measured again."""
    path = out / "pairs.jsonl"
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def table(out: Path) -> None:
    """Shares of failed tolerances with their 95 % Clopper-Pearson intervals."""
    failed: dict[tuple[float, str, int], list[bool]] = defaultdict(list)
    true: dict[float, list[float]] = defaultdict(list)
    for row in rows(out):
        true[row["drop"]].append(row["true"])
        for images, found in row["intervals"].items():
            for name, (low, high) in found.items():
                used = FLIPPED if name == "flip_distance" else int(images)
                for sentence in ASKED[name]:
                    if low is None:
                        raise ValueError(f"pair {row['pair']} was not measured: {name} on {used} images")
                    failed[row["drop"], sentence, used].append(
                        Tolerance.parse(sentence).exceeded_by(low, high)
                    )
    for drop, values in sorted(true.items()):
        drawn = torch.tensor(values, dtype=torch.float64)
        mean, spread = 100 * float(drawn.mean()), 100 * float(drawn.std())
        print(
            f"drop {100 * drop:g}: {len(values)} pairs, on all test images {mean:.2f} +- {spread:.2f} points"
        )
    print("| drop | tolerance | images | failed | of | share | 95 % |\n|---|---|---|---|---|---|---|")
    for (drop, sentence, images), outcomes in sorted(failed.items()):
        k, n = sum(outcomes), len(outcomes)
        low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
        high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
        ends = f"{100 * low:.1f} to {100 * high:.1f} %"
        print(f"| {100 * drop:g} | {sentence} | {images} | {k} | {n} | {100 * k / n:.1f} % | {ends} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", help="the folder with MNIST's files")
    parser.add_argument("--out", type=Path, default=Path("gate-errors"))
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.table:
        measure(given.root, given.out)
    table(given.out)


if __name__ == "__main__":
    main()
