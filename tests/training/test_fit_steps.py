"""Training for a number of steps, and sets that are looked at after every epoch."""

from typing import Any

import pytest
import torch
from torch import nn

from clearance.training import FOCA, EndToEnd, fit


def test_steps_cut_the_last_pass_short(data, make_model):
    """24 images, 10 a step: three steps an epoch; seven are two epochs and a third of one."""
    result = fit(make_model(), EndToEnd(), data, steps=7, batch_size=10)
    assert result.status.step == 7
    assert [(row["epoch"], row["step"]) for row in result.history] == [(1, 3), (2, 6), (3, 7)]


def test_as_far_as_they_go_steps_and_epochs_are_the_same_training(data, make_model, weights, same):
    models = [make_model(nn.BatchNorm1d(6), nn.Dropout(0.5)) for _ in range(2)]
    by_epoch = fit(models[0], EndToEnd(), data, epochs=2, batch_size=10)
    by_step = fit(models[1], EndToEnd(), data, steps=6, batch_size=10)
    assert same(weights(models[0]), weights(models[1]))
    assert by_epoch.history == by_step.history


def test_the_mean_of_a_short_pass_is_over_its_own_steps(data, make_model):
    """At step size 0 the loss of one step in a pass of one is that of its ten images alone."""
    still: dict[str, Any] = {
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        "batch_size": 12,
    }
    long = fit(make_model(), EndToEnd(), data, steps=4, **still).history
    short = fit(make_model(), EndToEnd(), data, steps=3, **still).history
    assert long[0] == short[0]
    assert short[1]["cross_entropy"] == pytest.approx(long[1]["cross_entropy"], rel=0.5)
    assert short[1]["cross_entropy"] != long[1]["cross_entropy"]
    assert short[1]["cross_entropy"] > 0.6 * short[0]["cross_entropy"]  # and not half of it


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ({}, "one of `epochs` and `steps` must be given; got epochs=None and steps=None"),
        ({"epochs": 1, "steps": 1}, "one of `epochs` and `steps` must be given"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1"),
    ],
)
def test_one_length_is_needed(data, make_model, length, message):
    with pytest.raises(ValueError, match=message):
        fit(make_model(), EndToEnd(), data, **length)


def test_a_run_of_other_steps_is_another_run(data, make_model, tmp_path):
    fit(make_model(), EndToEnd(), data, steps=2, run_dir=tmp_path / "run")
    with pytest.raises(ValueError, match="steps"):
        fit(make_model(), EndToEnd(), data, steps=3, run_dir=tmp_path / "run")


class Killed(Exception):  # noqa: N818 - stands for the end of the process
    pass


def test_a_killed_run_of_steps_ends_the_same(data, make_model, weights, same, tmp_path):
    def train(folder, end=None):
        def on_step(progress):
            assert progress.steps == 8
            if progress.step == end:
                raise Killed

        model = make_model(nn.Dropout(0.5))
        kept = {"run_dir": folder, "checkpoint_every": 2, "validation": {"test": data}}
        result = fit(model, EndToEnd(), data, steps=8, batch_size=10, on_step=on_step, **kept)
        return weights(model), result.history

    straight = train(tmp_path / "straight")
    with pytest.raises(Killed):
        train(tmp_path / "killed", 7)
    again = train(tmp_path / "killed")
    assert same(again[0], straight[0])
    assert again[1] == straight[1]


def test_watched_sets_are_measured_and_change_nothing(data, make_model, weights, same):
    models = [make_model(nn.BatchNorm1d(6), nn.Dropout(0.5)) for _ in range(2)]
    fit(models[0], EndToEnd(), data, epochs=2, batch_size=10)
    few = data.subset(torch.tensor([0, 5, 11, 17, 23]))
    found = fit(
        models[1], EndToEnd(), data, epochs=2, batch_size=10, validation={"validation": data, "test": few}
    )
    assert same(weights(models[0]), weights(models[1]))
    assert list(found.history[0])[-2:] == ["validation_error", "test_error"]
    wrong = models[1](few.images).argmax(dim=1) != few.labels
    assert found.history[-1]["test_error"] == float(wrong.double().mean())


def test_a_head_that_is_not_in_use_yet_is_not_measured(data, make_model):
    found = fit(make_model(), FOCA(per_class=2), data, steps=3, batch_size=10, validation={"test": data})
    assert all("test_error" not in row for row in found.history)
