"""Tasks of studies: what is finished is kept, and what was measured on another network is done again."""

import os
from functools import partial
from pathlib import Path

import pytest
import torch

from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan
from clearance.runs.directory import write_result
from papers.engine.study import whose
from papers.engine.tasks import each
from papers.tanay_2018.svm import solved_pair


def test_a_network_that_was_trained_anew_is_measured_anew(tmp_path):
    plan = RunPlan(Recipe(methods={"plain": Method()}), "plain", 0)
    folder = tmp_path / "runs" / plan.folder
    folder.mkdir(parents=True)
    asked = []

    def noted(task):
        asked.append(task)
        return {"asked": len(asked)}

    def measured(weight):
        write_result(folder, {"weight": torch.tensor([weight])}, {})
        task = whose(plan, "digits", tmp_path / "runs")
        found = each(noted, {"a": task}, Path(tmp_path, "kept"), 1)
        return found["a"]["asked"]

    assert [measured(1.0), measured(1.0), measured(2.0)] == [1, 1, 2]


TASK = {"dataset": "digits", "pair": [2, 3], "tolerance": 1e-6}


class TestKeeping:
    def test_finished_tasks_are_read_back_and_changed_ones_done_again(self, tmp_path):
        seen = []

        def work(task):
            seen.append(task["x"])
            return {"y": task["x"] ** 2, "odd": float("inf")}

        first = each(work, {"a": {"x": 2}, "b": {"x": 3}}, tmp_path, 1)
        again = each(work, {"a": {"x": 2}, "b": {"x": 5}}, tmp_path, 1)
        assert seen == [2, 3, 5]
        assert first["a"] == again["a"] == {"y": 4, "odd": float("inf")}
        assert again["b"]["y"] == 25

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_those_who_wait_are_told_of_every_task(self, tmp_path, jobs):
        heard = []

        def listener(task, event):
            heard.append((task.title, task.folder, event["event"]))

        folder, tasks = tmp_path / "pairs", {"a": {"x": 2}, "b": {"x": 3}}
        each(dict, tasks, folder, jobs, listener)
        assert sorted(heard) == [(f"pairs {name}", f"pairs/{name}", "done") for name in "ab"]
        each(dict, {**tasks, "b": {"x": 4}}, folder, jobs, listener)
        assert heard[2:] == [("pairs a", "pairs/a", "kept"), ("pairs b", "pairs/b", "done")]

    def test_what_was_finished_before_an_interruption_stays(self, tmp_path):
        def work(task):
            if task["x"] == 2:
                raise KeyboardInterrupt
            return task

        tasks = {name: {"x": k} for k, name in enumerate("abcd")}
        with pytest.raises(KeyboardInterrupt):
            each(work, tasks, tmp_path, 1)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]

    def test_several_processes_give_the_same_in_the_order_of_the_tasks(self, tmp_path, monkeypatch):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        tasks = {f"digits-{k}": {**TASK, "pair": [k, 7]} for k in (5, 1)}
        found = each(partial(solved_pair, root=None), tasks, tmp_path, 2)
        assert list(found) == list(tasks)
        assert found["digits-1"]["models"] == solved_pair(tasks["digits-1"])["models"]
        assert "OMP_NUM_THREADS" not in os.environ
