"""The search: the same for every method, on a part of the training set, and wider where it must be."""

import dataclasses
import math
from pathlib import Path

import pytest

from clearance.experiments import build, search
from clearance.experiments.engines import Processes
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings, failed
from clearance.experiments.search import Trial, at_edge, best_trial
from clearance.records import Record, RunNote
from clearance.records.record import LeftOut
from clearance.vocabulary import Measurement, Outcome


def test_best_is_by_the_criterion_then_by_the_other():
    def trial(method, lr, one, own):
        return Trial(method, lr, 10, 4, one, 0.0, own, ("finished",))

    trials = [
        trial("a", 1, 0.3, 0.1),
        trial("a", 2, 0.2, 0.3),
        trial("a", 3, 0.2, 0.2),
        trial("b", 4, 0.0, 0.0),
    ]
    assert best_trial(trials, "a").lr == 3
    assert best_trial(trials, "a", "own_error").lr == 1
    assert best_trial(trials, "b").lr == 4


def test_where_all_finalists_failed_nothing_is_chosen():
    """The trials that chose them were shorter: they are no measurement of what was asked for."""
    short = [Trial("a", lr, 10, 2, None, None, lr, ("finished",)) for lr in (0.1, 0.2)]
    last = [Trial("a", lr, 10, 8, None, None, 1.0, ("failed: killed",)) for lr in (0.1, 0.2)]
    assert best_trial(short, "a", "own_error").lr == 0.1
    with pytest.raises(ValueError, match=r"no trial of method 'a' could be measured.*killed"):
        best_trial(short + last, "a", "own_error")


class Landscape:
    """A stand-in for the grid: errors grow with the distance of lr from the optimum, in doublings."""

    def __init__(self, optimum, broken=(), drift=1.0):
        self.optimum, self.broken, self.drift = optimum, broken, drift
        self.calls, self.engines, self.data = [], [], None

    def __call__(self, plans, data, directory, jobs, listener):
        self.calls.append(plans)
        self.engines.append(jobs)
        self.data = data
        return [self.findings(plan) for plan in plans]

    def findings(self, plan):
        if plan.settings.lr in self.broken:
            return failed(plan, "boom")
        base = plan.method.split()[0]
        optimum = self.optimum[base] * (self.drift if plan.seed else 1.0)
        error = 0.05 * abs(math.log2(plan.settings.lr / optimum)) + 0.001 * plan.seed
        error += 0.01 * (plan.settings.per_class != 1) * (base == "foca")
        one = Measurement(
            "co_adaptation", "error", error, "fraction", 150, context={"head": "retrained", "samples": 10}
        )
        linear = Measurement(
            "co_adaptation", "error", 0.0, "fraction", 150, context={"head": "linear", "samples": 10}
        )
        own = Measurement("accuracy", "error", error / 2, "fraction", 9, context={"split": "test"})
        train = Measurement("accuracy", "error", 0.0, "fraction", 9, context={"split": "train"})
        note = RunNote(plan.method, plan.seed, Outcome.FINISHED, "finished")
        where = ("digits", plan.method, plan.seed)
        return RunFindings(note, tuple(Record(*where, m) for m in (linear, one, train, own)), ())


@pytest.fixture
def searched(monkeypatch, data):
    """Search over plain (lr 0.1) and foca (lr 0.2) where the optimum is elsewhere."""

    def run(optimum, broken=(), seeds=2, train_fraction=1.0, drift=1.0, **more):
        grid = Landscape(optimum, broken, drift)
        monkeypatch.setattr(search, "run_grid", grid)
        splits = []

        def load(name, split="train", root=None, size=None):
            splits.append(split)
            return data.train

        monkeypatch.setattr(build, "load_dataset", load)
        methods = {"plain": Method(lr=0.1), "foca": Method(way="foca", lr=0.2)}
        recipe = Recipe(methods=methods, seeds=seeds, train_fraction=train_fraction)
        trials = search.search_settings(
            recipe, Path("unused"), more.pop("engine", None), lambda *_: None, **more
        )
        assert splits == ["train"]  # the test set is never read
        return trials, grid

    return run


def rates(trials, method):
    return sorted({trial.lr for trial in trials if trial.method == method})


def test_all_rounds_are_on_the_same_processes(searched):
    _, grid = searched({"plain": 0.1 * 8, "foca": 0.2}, engine=1)
    assert len(grid.calls) > 1
    assert isinstance(grid.engines[0], Processes)
    assert len({id(engine) for engine in grid.engines}) == 1


def test_the_middle_is_found_without_widening(searched):
    trials, grid = searched({"plain": 0.1, "foca": 0.4})
    assert len(grid.calls) == 1
    assert len(grid.calls[0]) == 2 * (5 + 5 * 2)  # two seeds; FOCA at two sizes of weak heads
    assert rates(trials, "plain") == pytest.approx([0.025, 0.05, 0.1, 0.2, 0.4])
    assert rates(trials, "foca") == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])
    assert best_trial(trials, "plain").lr == 0.1
    assert (best_trial(trials, "foca").lr, best_trial(trials, "foca").per_class) == (0.4, 1)


def test_errors_are_means_over_seeds_of_the_right_measurement(searched):
    trials, _ = searched({"plain": 0.1, "foca": 0.2})
    found = best_trial(trials, "plain")
    assert found.one_image_error == pytest.approx(0.0005)
    assert found.own_error == pytest.approx(0.00025)
    assert found.statuses == ("finished", "finished")


def test_every_candidate_is_measured_on_a_quarter_of_the_training_set(searched, data):
    _, grid = searched({"plain": 0.1, "foca": 0.2})
    assert {plan.recipe.held_out for plan in grid.calls[0]} == {0.25}
    assert (len(grid.data.train), len(grid.data.test)) == (18, 6)
    # nothing but the learning rate, and FOCA's images a class, differs from the recipe
    for plan in grid.calls[0]:
        base = Method(lr=0.1) if plan.method.startswith("plain") else Method(way="foca", lr=0.2)
        differs = {name for name in vars(base) if getattr(plan.settings, name) != getattr(base, name)}
        assert differs <= ({"lr", "per_class"} if base.way == "foca" else {"lr"})


@pytest.mark.parametrize(
    ("used", "sizes"), [(1.0, (18, 6)), (0.875, (18, 6)), (0.5, (12, 12)), (0.25, (6, 18))]
)
def test_what_the_recipe_leaves_unused_is_held_out(searched, used, sizes):
    """Trials train on as many images as the recipe does, as far as a quarter can be held out beside them."""
    _, grid = searched({"plain": 0.1, "foca": 0.2}, train_fraction=used)
    assert (len(grid.data.train), len(grid.data.test)) == sizes


@pytest.mark.parametrize(
    ("optimum", "reached"), [(0.8, 0.8), (1.6, 1.6), (100.0, 1.6), (0.0125, 0.0125), (1e-5, 0.00625)]
)
def test_an_edge_is_widened_at_most_twice(searched, optimum, reached):
    trials, grid = searched({"plain": optimum, "foca": 0.2})
    assert best_trial(trials, "plain").lr == pytest.approx(reached)
    assert len(grid.calls) <= 3
    added = [plan for plans in grid.calls[1:] for plan in plans]
    assert {plan.method.split()[0] for plan in added} == {"plain"}
    assert len(added) == 2 * (len(grid.calls) - 1)


def test_runs_that_broke_down_count_as_wrong_everywhere(searched):
    trials, _ = searched({"plain": 0.1, "foca": 0.2}, broken=(0.1,))
    (broken,) = [t for t in trials if t.method == "plain" and t.lr == 0.1]
    assert (broken.one_image_error, broken.own_error) == (1.0, 1.0)
    assert broken.statuses == ("failed: boom", "failed: boom")
    assert best_trial(trials, "plain").lr in (0.05, 0.2)


def test_an_audit_that_failed_gives_no_error_to_choose_by(searched, monkeypatch):
    def without_heads(grid, plan):
        found = whole(grid, plan)
        if plan.settings.lr != 0.1:
            return found
        lost = (LeftOut("co_adaptation", "failed", "MemoryError"),)
        return dataclasses.replace(found, records=found.records[2:], left_out=lost)

    whole = Landscape.findings
    monkeypatch.setattr(Landscape, "findings", without_heads)
    trials, _ = searched({"plain": 0.1, "foca": 0.2})
    (broken,) = [t for t in trials if t.method == "plain" and t.lr == 0.1]
    assert broken.failed == "failed: audit co_adaptation: MemoryError"
    assert best_trial(trials, "plain").lr in (0.05, 0.2)


def test_a_method_with_a_failed_run_is_searched_no_further(searched):
    """What is best without it may not be: repeated, the search must try what it would have tried at once."""
    trials, grid = searched({"plain": 1e-5, "foca": 100.0}, broken=(0.025,))
    tried = {name: {trial.lr for trial in trials if trial.method == name} for name in ("plain", "foca")}
    assert tried["plain"] == {0.1 * factor for factor in search.FACTORS}
    assert len(tried["foca"]) > len(search.FACTORS)
    assert len(grid.calls) > 1


def test_what_broke_down_is_never_chosen(searched):
    """An error of 1 may be the smallest there is; that a process was killed says nothing of a learning rate."""
    kept = Trial("plain", 0.2, 10, 4, None, None, 1.0, ("diverged at step 3: not finite", "finished"))
    lost = Trial("plain", 0.1, 10, 4, None, None, 0.0, ("finished", "failed: killed"))
    assert best_trial([lost, kept], "plain", "own_error") is kept
    everywhere = tuple(0.1 * factor for factor in search.FACTORS)
    trials, _ = searched({"plain": 0.1, "foca": 0.2}, broken=everywhere)
    with pytest.raises(ValueError, match=r"no trial of method 'plain' could be measured.*failed: boom"):
        best_trial(trials, "plain", "own_error")


def test_shorter_trials_of_a_recipe_that_counts_steps_are_refused(data):
    recipe = Recipe(methods={"plain": Method()}, steps=10)
    with pytest.raises(
        ValueError, match=r"`trial_epochs` must be None if the recipe counts steps; got 2 and 10"
    ):
        search.search_settings(recipe, Path("unused"), None, lambda *_: None, trial_epochs=2)


def test_the_table_marks_a_choice_at_an_edge(searched):
    trials, _ = searched({"plain": 0.1, "foca": 0.2})
    chosen = best_trial(trials, "plain")
    assert not at_edge(trials, chosen)
    assert at_edge([trial for trial in trials if trial.lr <= chosen.lr], chosen)
    assert at_edge([trial for trial in trials if trial.lr >= chosen.lr], chosen)


def test_what_is_within_a_standard_error_of_the_best_is_chosen_by_own_error():
    def trial(lr, one, error, own, epochs=4):
        return Trial("a", lr, 10, epochs, one, error, own, ("finished",))

    lowest, alike, beyond = trial(1, 0.30, 0.02, 0.09), trial(2, 0.315, 0.0, 0.05), trial(3, 0.33, 0.5, 0.01)
    assert best_trial([lowest, alike, beyond], "a") == alike
    assert best_trial([lowest, beyond], "a") == lowest
    assert best_trial([lowest, alike, beyond], "a", "own_error") == beyond
    assert (
        best_trial([lowest, trial(4, 0.1, 0.0, 0.0, epochs=2)], "a") == lowest
    )  # a shorter trial decides nothing


def test_the_best_of_short_trials_are_repeated_in_full_length(searched):
    trials, grid = searched({"plain": 0.1, "foca": 0.2}, trial_epochs=7, finalists=2)
    short, full = grid.calls
    assert {plan.recipe.epochs for plan in short} == {7}
    assert {plan.recipe.epochs for plan in full} == {60}
    again: dict = {trial.method: [] for trial in trials}
    for trial in trials[len(short) // 2 :]:
        again[trial.method].append((trial.lr, trial.per_class))
    assert again["foca"][0] == (0.2, 1)
    assert {lr for lr, _ in again["plain"]} < {0.05, 0.1, 0.2}
    assert [len(found) for found in again.values()] == [2, 2]
    assert best_trial(trials, "plain").epochs == 60


def test_the_best_are_repeated_with_more_seeds_and_chosen_among_by_all_of_them(searched):
    """A rate that one seed happens to like falls behind once others are asked."""
    trials, grid = searched({"plain": 0.1, "foca": 0.4}, seeds=1, finalists=2, finalist_seeds=3)
    assert len(grid.calls) == 2
    assert {plan.seed for plan in grid.calls[0]} == {0}
    assert {plan.seed for plan in grid.calls[1]} == {0, 1, 2}
    assert len(grid.calls[1]) == 2 * 2 * 3  # both methods, two candidates, three seeds
    assert len(best_trial(trials, "plain", "own_error").statuses) == 3
    lucky = [
        Trial("a", 1.0, 1, 4, None, None, 0.1, ("finished",)),
        Trial("a", 1.0, 1, 4, None, None, 0.3, ("finished",) * 3),
        Trial("a", 2.0, 1, 4, None, None, 0.2, ("finished",) * 3),
    ]
    assert best_trial(lucky, "a", "own_error").lr == 2.0


def test_a_choice_of_several_seeds_at_an_edge_is_widened_too(searched):
    """The first seed likes a rate within what was tried, the others one far beyond it."""
    wanted = {"seeds": 1, "drift": 16.0, "finalists": 2, "finalist_seeds": 3, "criterion": "own_error"}
    trials, grid = searched({"plain": 0.25, "foca": 0.2}, **wanted)
    assert best_trial([t for t in trials if len(t.statuses) == 1], "plain", "own_error").lr == 0.2
    assert best_trial(trials, "plain", "own_error").lr == pytest.approx(1.6)
    assert not at_edge(trials, best_trial(trials, "foca", "own_error"))
    later = [plan for plans in grid.calls[2:] for plan in plans if plan.method.startswith("plain")]
    assert {plan.seed for plan in later} == {0, 1, 2}
    assert sorted({plan.settings.lr for plan in later}) == pytest.approx([0.8, 1.6])  # two widenings


def test_the_standard_error_is_that_of_the_mean(searched):
    trials, _ = searched({"plain": 0.1, "foca": 0.2}, seeds=2)
    chosen = best_trial(trials, "plain")
    # the stand-in has no spread over draws, and its two seeds are 0.001 apart
    assert chosen.one_image_standard_error == pytest.approx(0.0005)


def test_the_own_error_alone_can_choose_and_then_no_other_head_is_trained(searched):
    trials, grid = searched({"plain": 0.4, "foca": 0.2}, criterion="own_error")
    assert {plan.recipe.audits for plans in grid.calls for plan in plans} == {("accuracy",)}
    assert {trial.one_image_error for trial in trials} == {None}
    assert best_trial(trials, "plain", "own_error").lr == pytest.approx(0.4)
    assert max(rates(trials, "plain")) == pytest.approx(0.8)  # widened at the edge by the same criterion


def test_the_best_few_are_those_by_the_criterion(searched):
    trials, _ = searched({"plain": 0.1, "foca": 0.2}, criterion="own_error", trial_epochs=2, finalists=1)
    assert [trial.lr for trial in trials if trial.method == "plain" and trial.epochs > 2] == [
        pytest.approx(0.1)
    ]


def test_an_unknown_criterion_is_refused(searched):
    with pytest.raises(ValueError, match=r"`criterion` must be one of .*one_image_error.*got 'loss'"):
        searched({"plain": 0.1, "foca": 0.2}, criterion="loss")


def test_what_cannot_be_trained_is_refused_before_any_trial(monkeypatch, data):
    monkeypatch.setattr(search, "run_grid", None)
    monkeypatch.setattr(build, "load_dataset", lambda *_, **__: data.train)
    for changes, message in (
        ({"model": "vgg16", "methods": {"mine": Method(features=5)}}, "method 'mine'"),
        ({"samples": 10**6}, "`samples`"),
    ):
        with pytest.raises(ValueError, match=message):
            search.search_settings(Recipe(**changes), Path("unused"), None, lambda *_: None)
