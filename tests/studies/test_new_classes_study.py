"""The study of left-out classes, scaled down: from runs to the ledger, and the ledger against the runs."""

import dataclasses
import json
import math
import re

import pytest

from clearance.data.subsets import draw_classes
from clearance.experiments.run import RunPlan
from clearance.records import Record, Report
from clearance.vocabulary import Measurement
from papers.engine.ledger import COST, cost_in_words, table
from papers.engine.reproduce import reproduce
from papers.sato_2019 import new_classes
from studies.small_runs import cells, grids_here, interval, ledger_rows, number, stored, verdict, with_changes

DRAWS = 3
FULL = new_classes.new_classes_recipe
ONE = "new classes, retrained, 1 image of each"
COSTS = {"training time": "seconds", "memory that training adds": "memory"}


def small(draw):
    """The study's recipe with one epoch on a tenth of the images, narrow heads and two draws of images."""
    recipe = FULL(draw)
    narrow = {
        name: with_changes(method, hidden=(8,), head_steps=2, final_head_steps=5)
        for name, method in recipe.methods.items()
    }
    settings = {"new_classes": {"per_class": [1, 5], "repetitions": [3, 2], "hidden": [4]}}
    return dataclasses.replace(recipe, epochs=1, train_fraction=0.1, methods=narrow, audit_settings=settings)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The study in a folder, interrupted once and taken up again: folder, plans of both parts, what it left."""
    out = tmp_path_factory.mktemp("study")
    first: list[RunPlan] = []
    second: list[RunPlan] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_classes, "new_classes_recipe", small)
        grids_here(patch, first, stop_after=6)
        with pytest.raises(KeyboardInterrupt):
            reproduce("sato_2019", only="new-classes", seeds=DRAWS, out=out)
        assert not (out / "ledger.md").exists()
        grids_here(patch, second)
        found = reproduce("sato_2019", only="new-classes", seeds=DRAWS, out=out)
    return out, first, second, found


def test_interrupted_it_goes_on_where_it_stood(done):
    _, first, second, found = done
    assert len(first) == 6
    assert len(second) == DRAWS * len(new_classes.METHODS) - 6
    assert not {plan.folder for plan in first} & {plan.folder for plan in second}
    assert found.ledger.name == "ledger.md"
    assert not found.missing


def test_every_draw_leaves_out_classes_of_its_own_from_all_methods(done):
    out, first, second, _ = done
    seen: dict[int, set[tuple[str, ...]]] = {}
    for plan in first + second:
        facts = json.loads((out / "runs" / plan.folder / "model.json").read_text("utf-8"))
        seen.setdefault(plan.seed, set()).add(tuple(facts["classes"]))
    for draw in range(DRAWS):
        out_of_it = {str(k) for k in draw_classes(10, 3, draw)}
        assert seen[draw] == {tuple(str(k) for k in range(10) if str(k) not in out_of_it)}
    assert len({classes for kept in seen.values() for classes in kept}) > 1
    ledger = json.loads((out / "ledger.json").read_text("utf-8"))
    assert ledger["left_out"] == [list(draw_classes(10, 3, draw)) for draw in range(DRAWS)]


def test_every_number_is_that_of_the_runs(done):
    out, first, second, _ = done
    kept, rows, shown = stored(out, first + second), ledger_rows(out), cells(out)
    settings = [(head, size) for head in new_classes.HEADS for size in (1, 5)]
    for head, size in settings:
        label = f"new classes, {head}, {'1 image' if size == 1 else '5 images'} of each"
        for method in new_classes.METHODS:
            values = [
                number(kept[method, k], "new_classes", "error", head=head, per_class=size)
                for k in range(DRAWS)
            ]
            row = rows[label, method]
            assert row["values"] == {str(k): value for k, value in enumerate(values)}
            mean, low, high = interval(values)
            over = row["over_seeds"]
            assert (over["mean"], over["low"], over["high"]) == pytest.approx((mean, low, high))
            text = f"{100 * mean:.1f} % ({100 * max(low, 0):.1f} % to {100 * min(high, 1):.1f} %)"
            assert shown[label][method].startswith(text)
    assert set(rows) == {
        (label, method)
        for label in {*(row for row, _ in rows), *COSTS, "own head, the other classes"}
        for method in new_classes.METHODS
    }
    assert len(rows) == (len(settings) + 3) * len(new_classes.METHODS)


def test_verdicts_are_paired_over_draws(done):
    out, first, second, _ = done
    kept, rows, shown = stored(out, first + second), ledger_rows(out), cells(out)
    for method in new_classes.METHODS[1:]:
        differences = [
            number(kept[method, k], "new_classes", "error", head="retrained", per_class=1)
            - number(kept["plain", k], "new_classes", "error", head="retrained", per_class=1)
            for k in range(DRAWS)
        ]
        mean, low, high = interval(differences)
        one = rows[ONE, method]["against"]["plain"]
        assert (one["difference"], one["low"], one["high"]) == pytest.approx((mean, low, high))
        assert one["verdict"] == verdict(low, high)
        assert shown[ONE][method].endswith(f"[{verdict(low, high)}]")
    assert "[" not in shown[ONE]["plain"]


def test_cost_stands_beside_as_a_factor_of_time_and_memory(done):
    out, first, second, _ = done
    kept, rows, shown = stored(out, first + second), ledger_rows(out), cells(out)
    text = (out / "ledger.md").read_text("utf-8")
    for label, name in COSTS.items():
        logs = [
            math.log(number(kept["foca", k], "training", name) / number(kept["plain", k], "training", name))
            for k in range(DRAWS)
        ]
        mean, low, high = interval(logs)
        one = rows[label, "foca"]["against"]["plain"]
        assert (one["difference"], one["low"], one["high"]) == pytest.approx((mean, low, high))
        factor = shown[label]["foca"].split(", ")[1]
        assert float(factor.split("×")[0]) == pytest.approx(math.exp(mean), rel=0.06)  # two digits are shown
        assert f"{factor} the {label}" in text
    (line,) = [one for one in text.splitlines() if one.startswith("- foca against plain")]
    verdicts = [
        row["against"]["plain"]["verdict"]
        for (label, method), row in rows.items()
        if method == "foca" and label.startswith("new classes")
    ]
    assert (
        f"of {len(verdicts)} cells: better {verdicts.count('better')}, worse {verdicts.count('worse')}"
        in line
    )


def test_methods_of_a_draw_get_the_same_images(done):
    out, first, second, _ = done
    kept = stored(out, first + second)
    for draw in range(DRAWS):
        pixels = {
            number(kept[method, draw], "new_classes", "error", head="nearest pixel", per_class=1)
            for method in new_classes.METHODS
        }
        assert len(pixels) == 1
    assert "The nearest image on raw pixels, no network:" in (out / "ledger.md").read_text("utf-8")


def test_a_run_that_broke_down_is_told_and_its_pairs_are_left_out(done, monkeypatch, tmp_path):
    monkeypatch.setattr(new_classes, "new_classes_recipe", small)
    monkeypatch.setattr(new_classes, "METHODS", ("plain", "foca"))
    grids_here(monkeypatch, [], broken={("plain", 1)})
    reproduce("sato_2019", only="new-classes", seeds=2, out=tmp_path)
    text = (tmp_path / "ledger.md").read_text("utf-8")
    (unfinished,) = re.findall(
        r"\d of 4 runs did not finish \((.*)\)", text
    )  # after one epoch some have collapsed too
    assert "plain: 1 stopped" in unfinished
    one = ledger_rows(tmp_path)[ONE, "foca"]["against"]["plain"]
    assert (one["seeds"], one["dropped"], one["low"]) == (1, 1, None)
    assert cells(tmp_path)[ONE]["foca"].endswith("[no verdict: 1 seed]")
    assert "- foca against plain on new classes: no verdict" in text


def test_without_a_number_above_0_there_is_no_factor():
    def added(method, value):
        return Record("digits", method, 0, Measurement("training", "memory", value, "MiB", 1, better="lower"))

    report = Report({}, {}, "", "", (added("plain", 0.0), added("foca", 3.0)))
    assert COST[1].compared(report, "foca", "plain") is None
    assert cost_in_words(report, "foca", "plain") == ""
    assert table(report, COST, ("plain", "foca"), "plain").endswith(f"| {COST[1].label} | 0 MiB | 3.00 MiB |")


def test_five_draws_by_default_of_the_paper_methods():
    assert new_classes.DRAWS == 5
    plans = [RunPlan(FULL(draw), "foca", draw) for draw in range(5)]
    assert len({plan.recipe.left_out for plan in plans}) == 5
    assert FULL(0).audit_settings["new_classes"]["per_class"] == [1, 5, 20]
