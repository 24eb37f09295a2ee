"""How strong the weak heads were: reported once per epoch, from logits that a step computes anyway."""

import json
from typing import Any

import pytest
import torch

from clearance.training import FOCA, EndToEnd, Limits, fit
from clearance.training.foca import Weakness


def test_3_5_3_accuracy_and_chance_by_hand():
    labels = torch.tensor([0, 1, 2, 0])
    predicted = torch.tensor(
        [[0, 1, 2, 0], [0, 0, 0, 1], [1, 2, 0, 1]]
    )  # 4, 1 and 0 of 4 right; chance is 1 / 3
    weakness = Weakness()
    weakness.note(torch.nn.functional.one_hot(predicted[:2], 3).float(), labels)
    weakness.note(torch.nn.functional.one_hot(predicted[2:], 3).float(), labels)
    assert weakness.take() == pytest.approx(
        {"weak_head_accuracy": (1 + 1 / 4 + 0) / 3, "weak_heads_at_chance": 2 / 3}
    )
    assert weakness.take() == {}


def test_exactly_chance_is_no_better_than_chance():
    weakness = Weakness()
    weakness.note(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
    assert weakness.take() == {"weak_head_accuracy": 0.5, "weak_heads_at_chance": 1.0}


@pytest.mark.parametrize("mode", ["average", "cycle"])
def test_an_epoch_tells_the_mean_over_its_steps(data, watched, make_model, mode):
    model, spy, expected = make_model(), watched(), []

    class Remembering(FOCA):
        def start(self, *arguments):
            training: Any = super().start(*arguments)
            step = training.step

            def watching(images, labels):
                with torch.no_grad():
                    features = model.features(images)
                loss = step(images, labels)
                heads = spy.calls[-1][2].stack
                place = (training.steps - 1) % self.reuse
                used = range(len(heads)) if mode == "average" else [place % len(heads)]
                hits = [(heads[k](features).argmax(dim=1) == labels).double().mean() for k in used]
                expected.append([float(hit) for hit in hits])
                return loss

            training.step = watching
            return training

    way = Remembering(weak_heads=spy, per_class=1, heads=2, reuse=2, mode=mode)
    result = fit(model, way, data, epochs=2, batch_size=8, limits=Limits(max_norm=3.0))
    assert [(row["epoch"], row["step"]) for row in result.diagnostics] == [(1, 3), (2, 6)]
    for row, steps in zip(result.diagnostics, (expected[:3], expected[3:]), strict=True):
        hits = [hit for step in steps for hit in step]
        assert row["weak_head_accuracy"] == pytest.approx(sum(hits) / len(hits))
        assert row["weak_heads_at_chance"] == pytest.approx(sum(h <= 1 / 3 for h in hits) / len(hits))
    assert all("weak_head_accuracy" not in row for row in result.history)  # whose rows hold losses


def test_an_epochs_logged_row_holds_it_and_a_run_read_back_too(data, make_model, tmp_path):
    def run():
        return fit(make_model(), FOCA(per_class=2), data, epochs=2, batch_size=8, run_dir=tmp_path / "run")

    first, again = run(), run()
    assert len(first.diagnostics) == 2
    assert again.diagnostics == first.diagnostics
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for row, history, seen in zip(logged, first.history, first.diagnostics, strict=True):
        assert row == history | seen


def test_a_resumed_run_tells_the_same(data, make_model, tmp_path):
    def run(where, **how):
        way = FOCA(per_class=2, pool=12)
        return fit(make_model(), way, data, epochs=3, batch_size=8, run_dir=where, checkpoint_every=2, **how)

    whole = run(tmp_path / "whole")
    run(tmp_path / "cut", on_step=lambda progress: "stop" if progress.step == 5 else None)
    assert run(tmp_path / "cut").diagnostics == whole.diagnostics
    assert len(whole.diagnostics) == 3


def test_a_way_of_training_without_weak_heads_tells_nothing(data, make_model):
    assert fit(make_model(), EndToEnd(), data, epochs=1, batch_size=8).diagnostics == []
