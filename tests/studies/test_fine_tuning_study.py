"""The study of fine-tuning, scaled down: from plain networks to the ledger, and the ledger against the runs."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from clearance.experiments.build import build_data
from clearance.experiments.run import RunPlan
from clearance.experiments.saved import load_run
from papers.__main__ import main
from papers.engine.reproduce import reproduce
from papers.engine.study import NoDataError
from papers.sato_2019 import fine_tuning
from papers.sato_2019.fine_tuning import BEFORE, FOCA, SAME_COST, SAME_STEPS
from studies.small_runs import (
    cells,
    grids_here,
    interval,
    ledger_rows,
    number,
    stored,
    verdict,
    with_changes,
    write_idx,
    write_photographs,
)

FULL = fine_tuning.paper_recipe
SEEDS = 2
ONE = "retrained head, 10 images"


def small_recipe(paper, dataset, root=None):
    """The paper's recipe for one epoch, with narrow heads."""
    recipe = FULL(paper, dataset, root)
    narrow = {
        name: with_changes(method, hidden=(8,), head_steps=2, per_class=1)
        for name, method in recipe.methods.items()
    }
    few = 0.1 if dataset == "digits" else 1.0
    return dataclasses.replace(recipe, epochs=1, batch_size=32, train_fraction=few, methods=narrow)


@pytest.fixture(scope="module")
def scaled():
    """Everything that costs time is cut down, for the tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fine_tuning, "paper_recipe", small_recipe)
        patch.setattr(fine_tuning, "EPOCHS", {SAME_COST: 2, SAME_STEPS: 1, FOCA: 1})
        patch.setattr(fine_tuning, "FACTORS", (0.5, 1.0))
        patch.setattr(fine_tuning, "FINAL_HEAD_STEPS", 5)
        heads = {"per_class": [1], "repetitions": [3], "hidden": [4], "all_images": False}
        patch.setattr(fine_tuning, "SETTINGS", {"co_adaptation": heads})
        yield patch


@pytest.fixture(scope="module")
def done(scaled, tmp_path_factory):
    """The study on digits, interrupted while tuning and taken up again: folder and plans of both parts."""
    out = tmp_path_factory.mktemp("study")
    first: list[RunPlan] = []
    second: list[RunPlan] = []
    grids_here(scaled, first, stop_after=11)
    with pytest.raises(KeyboardInterrupt):
        reproduce("sato_2019", only="fine-tuning", seeds=SEEDS, out=out)
    assert not (out / "ledger.md").exists()
    grids_here(scaled, second)
    reproduce("sato_2019", only="fine-tuning", seeds=SEEDS, out=out)
    return out, first, second


def tuned(done):
    """The final tuning runs: not those of the search, not plain training."""
    return [p for p in done[1] + done[2] if p.method != "plain" and p.recipe.held_out == 0]


def test_interrupted_it_goes_on_where_it_stood(done):
    _, first, second = done
    # a network for the search, its 3 ways x 2 rates, then 2 networks and 3 ways from each
    assert len(first) == 11
    assert len(first) + len(second) == 1 + 6 + 2 + 6
    assert not {plan.folder for plan in first} & {plan.folder for plan in second}


def test_the_search_sees_no_test_image_and_its_network_no_image_of_the_split(done):
    searched = [plan for plan in done[1] if plan.recipe.held_out > 0]
    assert [plan.method for plan in searched] == ["plain", *(w for w in fine_tuning.WAYS for _ in range(2))]
    assert {plan.recipe.held_out for plan in searched} == {fine_tuning.HELD_OUT}
    network = done[0] / "runs" / searched[0].folder
    assert {plan.recipe.model for plan in searched[1:]} == {f"run:{network}"}
    assert load_run(network).recipe.held_out == fine_tuning.HELD_OUT


def test_the_chosen_rate_has_the_smallest_one_image_error_on_the_split(done):
    out = done[0]
    text = (out / "ledger.md").read_text("utf-8")
    tried = json.loads((out / "ledger.json").read_text("utf-8"))["tried"]
    for plan in (p for p in done[1] if p.recipe.held_out > 0 and p.method != "plain"):
        rows = stored(out, [plan])[plan.method, 0]
        (error,) = [t["error"] for t in tried if (t["way"], t["lr"]) == (plan.method, plan.settings.lr)]
        assert error == number(rows, "co_adaptation", "error", head="retrained")
    for plan in tuned(done):
        own = [t for t in tried if t["way"] == plan.method]
        assert len(own) == 2
        assert plan.settings.lr == min(own, key=lambda t: t["error"])["lr"]
        assert f"{plan.method}, lr {plan.settings.lr:g}: " in text
    assert text.count("(chosen)") == len(fine_tuning.WAYS)


def test_every_way_starts_from_the_same_networks_and_has_its_budget(done):
    out = done[0]
    plain = {p.seed: p for p in done[1] + done[2] if p.method == "plain" and p.recipe.held_out == 0}
    kept = stored(out, tuned(done))
    assert set(kept) == {(way, seed) for way in fine_tuning.WAYS for seed in range(SEEDS)}
    for plan in tuned(done):
        assert plan.recipe.model == f"run:{out / 'runs' / plain[plan.seed].folder}"
    for seed in range(SEEDS):
        steps = {way: number(kept[way, seed], "training", "steps") for way in fine_tuning.WAYS}
        assert steps[SAME_STEPS] == steps[FOCA]
        assert steps[SAME_COST] == 2 * steps[FOCA]


def test_every_number_and_verdict_is_that_of_the_runs(done):
    out = done[0]
    kept, rows, shown = stored(out, tuned(done)), ledger_rows(out), cells(out)
    for head in ("retrained", "linear", "class mean"):
        label = f"{head} head, 10 images"
        errors = {
            way: [number(kept[way, k], "co_adaptation", "error", head=head, samples=10) for k in range(SEEDS)]
            for way in fine_tuning.WAYS
        }
        errors[BEFORE] = list(rows[label, BEFORE]["values"].values())
        for way in fine_tuning.WAYS:
            row = rows[label, way]
            assert list(row["values"].values()) == errors[way]
            assert row["over_seeds"]["mean"] == pytest.approx(interval(errors[way])[0])
            for rival in (BEFORE, SAME_COST, SAME_STEPS):
                if rival == way:
                    continue
                found = interval([a - b for a, b in zip(errors[way], errors[rival], strict=True)])
                one = row["against"][rival]
                assert (one["difference"], one["low"], one["high"]) == pytest.approx(found)
                assert one["verdict"] == verdict(*found[1:])
            assert shown[label][way].endswith(f"[{row['against'][BEFORE]['verdict']}]")


def test_the_network_as_it_was_is_measured_like_the_others(done):
    out, rows = done[0], ledger_rows(done[0])
    plan = next(p for p in done[1] + done[2] if p.method == "plain" and p.recipe.held_out == 0)
    own = number(stored(out, [plan])["plain", plan.seed], "accuracy", "error", split="test")
    assert rows["own head", BEFORE]["values"][str(plan.seed)] == own


def test_cost_stands_beside_the_gain_as_a_factor(done):
    out = done[0]
    kept, rows, text = stored(out, tuned(done)), ledger_rows(out), (out / "ledger.md").read_text("utf-8")
    sentences = {}
    for rival in (SAME_COST, SAME_STEPS):
        start = text.index(f"FOCA against `{rival}`, at ")
        sentences[rival] = text[start : text.index("\n", start)]
        for label, name in (("training time", "seconds"), ("memory that training adds", "memory")):
            factor = math.exp(
                interval(
                    [
                        math.log(number(kept[FOCA, k], "training", name))
                        - math.log(number(kept[rival, k], "training", name))
                        for k in range(SEEDS)
                    ]
                )[0]
            )
            one = rows[label, FOCA]["against"][rival]
            assert math.exp(one["difference"]) == pytest.approx(factor)
            assert f"the {label}" in sentences[rival]
    assert "it has 2 epochs, FOCA 1 and its final head" in text
    assert f"- {ONE}: " in text


def test_nothing_to_start_from_is_one_clear_error(scaled, tmp_path):
    grids_here(scaled, [], broken={("plain", 0), ("plain", 1)})
    with pytest.raises(ValueError, match="no network could be trained to start from: failed: boom"):
        reproduce("sato_2019", only="fine-tuning", seeds=SEEDS, out=tmp_path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with a small MNIST and small photographs."""
    place = tmp_path_factory.mktemp("root")
    write_idx(place / "mnist", "train", 60)
    write_idx(place / "mnist", "t10k", 20)
    write_photographs(place / "sign-language-digits")
    return place


def test_with_a_root_networks_of_mnist_meet_the_photographs(scaled, root, monkeypatch, tmp_path):
    noted: list[RunPlan] = []
    grids_here(monkeypatch, noted)
    found = reproduce("sato_2019", only="fine-tuning", root=str(root), seeds=SEEDS, out=tmp_path)
    text = found.ledger.read_text("utf-8")
    assert "trained plainly on mnist, tuned and measured on sign-language-digits" in text
    assert "--only fine-tuning --root ROOT --seeds 2`" in text
    assert str(root) not in text + (tmp_path / "report.json").read_text("utf-8")
    data = build_data(noted[-1].recipe)
    assert (data.train.shape, len(data.train), len(data.test)) == ((1, 28, 28), 48, 12)
    starts = {plan.recipe.model for plan in noted if plan.method != "plain"}
    assert len(starts) == SEEDS  # the search starts from one of them: it has seen no photograph
    assert all(rows["values"] for rows in ledger_rows(tmp_path).values() if rows["audit"] != "training")


@pytest.mark.parametrize("missing", ["everything", "photographs", "mnist"])
def test_without_the_files_nothing_is_run_and_the_status_is_0(missing, root, tmp_path, capsys):
    given = tmp_path / "root"
    given.mkdir()
    if missing != "everything":
        name = "mnist" if missing == "photographs" else "sign-language-digits"
        (given / name).symlink_to(root / name)
    out = tmp_path / "out"
    main(["sato_2019", "--only", "fine-tuning", "--root", str(given), "--out", str(out)])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert not (out / "runs").exists()
    assert "Nothing was run: no data (`root` must hold mnist and sign-language-digits" in shown.out
    text = (out / "ledger.md").read_text("utf-8")
    assert "**not run**: no data. Run `python -m papers sato_2019 --only fine-tuning --root ROOT`." in text
    assert str(given) not in text
    with pytest.raises(NoDataError):
        fine_tuning.task(str(given), out)


def test_five_networks_by_default():
    chosen = fine_tuning.task(None, Path("unused"))
    assert chosen.start.seeds == 5
    assert list(chosen.start.methods) == ["plain"]
