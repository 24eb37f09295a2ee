"""What a study adds to finished runs is known by the network that it was measured on."""

from pathlib import Path

import torch

from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan
from clearance.runs.directory import write_result
from papers.engine.study import whose
from papers.engine.tasks import each


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
