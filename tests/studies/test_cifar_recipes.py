"""The recipes for CIFAR-10 and CIFAR-100, scaled down, from files in CIFAR's format to a verdict for every claim."""

import csv
import dataclasses
import importlib
import json
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from clearance.experiments.run import RunPlan
from clearance.records.store import load_report
from papers.__main__ import main
from papers.engine import reproduce as module
from papers.engine.catalogue import paper_claims, whole_recipe
from papers.engine.judging import judge
from papers.engine.kept import Kept, versions_of
from papers.engine.verify import ROOT
from papers.sato_2019 import search_rates
from studies.small_runs import grid_here, number, stored, with_changes

RESULTS = ROOT / "sato_2019" / "results" / "cifar10"
CLASSES = {"cifar10": 10, "cifar100": 100}
TRAIN, TEST = {"cifar10": 40, "cifar100": 5}, 2  # images of a class
LABEL_BYTES = {"cifar10": 1, "cifar100": 2}
FILES = {
    "cifar10": ("cifar-10-batches-bin", [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin"),
    "cifar100": ("cifar-100-binary", ["train.bin"], "test.bin"),
}
MODELS = {"cifar10": "convnet32", "cifar100": "vgg16"}
STAGES = {"cifar10": "SMALL_STAGES", "cifar100": "STAGES"}
NARROW = {"cifar10": ((2,), (4,), (4,)), "cifar100": ((2,), (4,), (4,), (8,), (8,))}
SMALL_AUDITS: dict[str, dict[str, Any]] = {
    "co_adaptation": {"hidden": [4], "least_steps": 2, "passes": 1},
    "deeper_cut": {"hidden": [4], "least_steps": 2, "passes": 1},
    "geodesic": {"repetitions": 1, "segments": 2, "hidden": [4, 4]},  # three layers, as in the paper
    "neural_collapse": {"heads": 2},
    "churn": {"heads": 2, "hidden": [4]},
}


def write_cifar(folder, dataset):
    """Noise with a bright square whose place is the class, as label bytes and three planes."""
    inner, parts, test = FILES[dataset]
    (folder / inner).mkdir(parents=True)
    draw = np.random.default_rng(0)
    for file in (*parts, test):
        per_class = TEST if file == test else TRAIN[dataset] // len(parts)
        labels = np.tile(np.arange(CLASSES[dataset], dtype=np.uint8), per_class)
        pixels = draw.integers(0, 100, (len(labels), 3, 32, 32), dtype=np.uint8)
        for row, label in enumerate(labels):
            pixels[
                row, :, 3 * (label // 10) : 3 * (label // 10) + 3, 3 * (label % 10) : 3 * (label % 10) + 3
            ] = 255
        heads = [labels // 5, labels][2 - LABEL_BYTES[dataset] :]
        records = np.concatenate([*(h[:, None] for h in heads), pixels.reshape(len(labels), -1)], axis=1)
        (folder / inner / file).write_bytes(records.tobytes())


def scaled(recipe):
    """Two steps of every method, one seed; every audit with few heads."""
    tiny = {"hidden": (8, 8), "head_steps": 2, "final_head_steps": 2}
    settings = {name: {**recipe.audit_settings.get(name, {}), **few} for name, few in SMALL_AUDITS.items()}
    for name in ("co_adaptation", "deeper_cut"):
        sizes = [2**k for k in range(len(settings[name]["per_class"]))]  # 1, 2, 4 ... for 1, 10, 100 ...
        settings[name] |= {"per_class": sizes, "repetitions": [2] * len(sizes)}
    count = CLASSES[recipe.dataset] * TRAIN[recipe.dataset]
    return dataclasses.replace(
        recipe,
        epochs=1,
        batch_size=count // 2,
        seeds=1,
        audit_settings=settings,
        methods={name: with_changes(method, **tiny) for name, method in recipe.methods.items()},
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("cifar10", marks=pytest.mark.slow),
        pytest.param("cifar100", marks=pytest.mark.long),
    ],
)
def done(request, tmp_path_factory):
    """What the command leaves: dataset, folder, plans."""
    dataset = request.param
    root, out = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("out")
    write_cifar(root, dataset)
    plans: list[RunPlan] = []
    with pytest.MonkeyPatch.context() as patch:
        extractor = importlib.import_module(f"clearance.models.extractors.{MODELS[dataset]}")
        patch.setattr(extractor, STAGES[dataset], NARROW[dataset])
        patch.setattr("papers.engine.kept.run_grid", grid_here(plans))
        patch.setattr(module, "whole_recipe", lambda *given: scaled(whole_recipe(*given)))
        words = ["--dataset", dataset, "--root", str(root), "--out", str(out), "--jobs", "1"]
        main(["sato_2019", *words])
    return dataset, out, plans


def test_all_five_methods_are_trained_and_every_audit_of_the_recipe_has_something_to_say(done):
    dataset, out, plans = done
    recipe = whole_recipe("sato_2019", dataset)
    assert [plan.method for plan in plans] == list(recipe.methods)
    for (method, _), rows in stored(out, plans).items():
        without = {"deeper_cut"} if method == "lgm" else set()  # its head is one layer
        assert {row["audit"] for row in rows} - {"training"} == set(recipe.audits) - without, method
        assert number(rows, "training", "steps") == 2


def about(claim, dataset):
    return dataset in (*claim.datasets, *claim.also)


def seeds(claim, dataset):
    """After two steps with 100 classes, no head of the geodesic is sure of anything, and the distance is infinite."""
    return "0 seeds" if dataset == "cifar100" and claim in ("G2", "G3") else "1 seed"


def test_every_claim_about_the_dataset_was_measured_and_only_seeds_are_missing(done):
    dataset, out, _ = done
    ledger = json.loads((out / "ledger.json").read_text("utf-8"))
    claims = paper_claims("sato_2019").claims
    expected = [
        (claim.id, "not run", "measured by its own command, not here")
        if claim.command
        else (claim.id, "not run", f"about {claim.datasets[0]}; this is {dataset}")
        if not about(claim, dataset)
        else (claim.id, "not judged", claim.not_judged[dataset])
        if dataset in claim.not_judged
        else (claim.id, "cannot tell", f"{seeds(claim.id, dataset)}; a verdict needs 5")
        for claim in claims
    ]
    assert [(row["id"], row["verdict"], row["reason"]) for row in ledger["claims"]] == expected
    assert sum(about(claim, dataset) for claim in claims) >= 7


def test_versions_are_those_of_the_runs_that_were_kept(done):
    _, out, plans = done
    rows = [json.loads(line) for line in (out / "runs.jsonl").read_text("utf-8").splitlines()]
    for row in rows[1:]:
        row["versions"]["torch"] = "2.6.0"
    (out / "elsewhere.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    own, python = version("torch"), rows[0]["versions"]["python"]
    found = versions_of(Kept(out / "elsewhere.jsonl"), plans, {"python": python, "torch": own})
    assert found == {"python": python, "torch": f"{own} and 2.6.0 (runs), {own} (ledger)"}


def test_with_five_seeds_every_claim_about_the_dataset_is_judged(done):
    """The records of the one seed, repeated five times: every comparison is then as sure as can be."""
    dataset, out, _ = done
    once = load_report(out).records
    records = [dataclasses.replace(record, seed=seed) for seed in range(5) for record in once]
    judged = {row.claim.id: row for row in judge(paper_claims("sato_2019"), records, dataset)}
    for claim in paper_claims("sato_2019").claims:
        row = judged[claim.id]
        if dataset in claim.not_judged:
            assert row.verdict == "not judged"
        elif about(claim, dataset) and claim.readings:
            assert row.verdict in ("holds", "ordering holds", "refuted", "cannot tell"), (
                claim.id,
                row.reason,
            )
            assert "seed" not in row.reason or seeds(claim.id, dataset) == "0 seeds", claim.id
        else:
            assert row.verdict == "not run"


@pytest.mark.parametrize("dataset", CLASSES)
def test_without_files_nothing_is_run_and_the_status_is_0(dataset, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for given, where in (([], "needs `root`"), (["--root", str(tmp_path / "empty")], "looked in")):
        main(["sato_2019", "--dataset", dataset, "--out", str(tmp_path / "out"), *given])
        shown = capsys.readouterr()
        assert shown.err == ""
        assert "Nothing was run: no data (" in shown.out
        assert not (tmp_path / "out" / "runs").exists()
        assert where in shown.out
        text = (tmp_path / "out" / "ledger.md").read_text("utf-8")
        assert "**not run**: no data" in text
        assert f"Run `python -m papers sato_2019 --dataset {dataset} --root ROOT`" in text


def test_the_search_tries_what_was_tried():
    """The committed trials, but for those of FOCA that came later."""
    with (RESULTS / "search-half.csv").open(encoding="utf-8") as file:
        tried = [(row["method"], float(row["lr"])) for row in csv.DictReader(file)]
    recipe = search_rates.searched_recipe("cifar10")
    assert tried[:28] == [
        (n, m.lr * factor) for n, m in recipe.methods.items() for factor in search_rates.FACTORS
    ]
    assert {method for method, _ in tried[28:]} == {"foca"}


def test_the_recipe_has_the_best_rate_of_every_method():
    with (RESULTS / "search-half.csv").open(encoding="utf-8") as file:
        trials = sorted(csv.DictReader(file), key=lambda row: -float(row["own_error"]))
    best = {row["method"]: float(row["lr"]) for row in trials}
    recipe = whole_recipe("sato_2019", "cifar10")
    assert best == {name: method.lr for name, method in recipe.methods.items()}
