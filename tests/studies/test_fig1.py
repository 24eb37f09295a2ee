"""The toy of Fig. 1: its measures against closed forms, what was guessed of it, and the study from run to ledger."""

import dataclasses
import json
import math

import pytest
import torch

from clearance.heads import HeadTraining
from clearance.heads.ridge import pair_head
from clearance.models.features import extract_features
from clearance.records import Record
from clearance.training.fit import FitResult
from clearance.vocabulary import Measurement, Outcome, Status
from papers.engine.catalogue import paper
from papers.sato_2019 import fig1
from papers.sato_2019.fig1 import (
    VARIANTS,
    Frame,
    ToyRun,
    ToySettings,
    guesses,
    pair_accuracies,
    panel,
    random_pairs,
    run_folder,
    signed,
    times_smaller,
    toy_classifier,
    train_variant,
    two_moons,
    verdict,
    weak_heads,
    within_between,
)

TINY = ToySettings(per_class=8, epochs_linear=3, epochs_mlp=3, linear_heads=2, mlp_heads=2)
LABELS = torch.tensor([0] * 8 + [1] * 8)


@pytest.fixture
def clouds():
    """Two classes of 8 points each on a circle of radius 0.3 around (1, 2) and (4, 6): distance 5."""
    angles = torch.arange(8, dtype=torch.float64) * math.pi / 4
    circle = 0.3 * torch.stack([angles.cos(), angles.sin()], dim=1)
    return torch.cat([circle + torch.tensor([1.0, 2.0]), circle + torch.tensor([4.0, 6.0])])


@pytest.fixture
def untrained():
    """A panel as it is before training."""

    def make(variant):
        data = two_moons(TINY, seed=3)
        model = toy_classifier(VARIANTS[variant].head, seed=3)
        return ToyRun(variant, 3, data, FitResult(model, Status(Outcome.FINISHED, 0)))

    return make


@pytest.fixture
def short_last_head(monkeypatch):
    """The head that a model keeps gets few steps: no test here looks at it."""
    monkeypatch.setattr(fig1, "LAST_HEAD", HeadTraining(steps=5, lr=0.01))


class TestMeasures:
    def test_extent_over_distance_of_two_circles(self, clouds):
        assert within_between(clouds, LABELS) == pytest.approx(0.3 / 5)

    def test_it_ignores_place_turn_and_scale(self, clouds):
        turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
        moved = 50 * clouds @ turn + torch.tensor([7.0, -9.0])
        assert within_between(moved, LABELS) == pytest.approx(0.3 / 5)

    def test_classes_in_one_place_are_infinitely_large(self, clouds):
        assert within_between(torch.cat([clouds[:8], clouds[:8]]), LABELS) == math.inf

    def test_a_pair_is_one_sample_of_each_class(self):
        labels = torch.tensor([1, 0, 1, 0, 0])
        pairs = random_pairs(labels, 200, seed=0)
        assert set(pairs[:, 0].tolist()) == {1, 3, 4}
        assert set(pairs[:, 1].tolist()) == {0, 2}
        assert not torch.equal(pairs, random_pairs(labels, 200, seed=1))

    def test_a_head_on_one_pair_says_which_of_the_two_is_nearer(self):
        features = torch.randn(16, 2, generator=torch.Generator().manual_seed(0)).double() + LABELS[:, None]
        found = pair_accuracies(features, LABELS, seed=5, count=30)
        for accuracy, (negative, positive) in zip(found, random_pairs(LABELS, 30, seed=5), strict=True):
            nearer = [
                math.dist(f, features[positive]) < math.dist(f, features[negative]) for f in features.tolist()
            ]
            right = sum(near == bool(label) for near, label in zip(nearer, LABELS, strict=True))
            assert float(accuracy) == right / 16
        assert 0.3 < float(found.mean()) < 1


class TestPlane:
    def test_means_are_half_a_unit_from_the_middle(self, clouds):
        frame = Frame.of(clouds, LABELS)
        shown = frame.coordinates(clouds)
        torch.testing.assert_close(shown[:8].mean(0), torch.tensor([-0.5, 0.0], dtype=torch.float64))
        torch.testing.assert_close(shown[8:].mean(0), torch.tensor([0.5, 0.0], dtype=torch.float64))
        assert within_between(shown, LABELS) == pytest.approx(0.3 / 5)
        torch.testing.assert_close(frame.features(shown), clouds)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_background_is_the_mean_of_single_heads(self, variant, untrained):
        run = untrained(variant)
        _, grid = panel(run, TINY, reach=1.0)
        features = extract_features(run.result.model, run.data).double()
        place = torch.tensor([[grid.columns["x"][100], grid.columns["y"][100]]], dtype=torch.float64)
        raw = Frame.of(features, run.data.labels).features(place).float()
        stack = weak_heads(run, TINY)
        alone = [float(signed(stack[k](raw))) for k in range(len(stack))]
        assert len(alone) == 256
        assert grid.columns["mean"][100] == pytest.approx(sum(alone) / 256, abs=1e-5)
        own = float(signed(run.result.model.head(raw)).detach())
        assert grid.columns["own"][100] == pytest.approx(own, abs=1e-5)

    def test_linear_weak_heads_are_the_closed_form_of_their_pairs(self, untrained):
        run = untrained("joint, linear head")
        features = extract_features(run.result.model, run.data)
        pairs = random_pairs(run.data.labels, 256, run.seed)
        weight, bias = pair_head(features[pairs[:, 1]], features[pairs[:, 0]], 1.0, -1.0, TINY.penalty)
        torch.testing.assert_close(
            signed(weak_heads(run, TINY)(features)), (features @ weight.T + bias).T, atol=1e-5, rtol=1e-4
        )


def records_of(**values):
    """Records of both kinds of head: lists of within/between by seed, and one accuracy for all."""
    names = {"foca": "FOCA, {} heads", "joint": "joint, {} head"}
    return [
        Record("toy", names[who].format(head), seed, Measurement("toy", name, value, "ratio", 1))
        for who in names
        for head in ("linear", "MLP")
        for name, series in (("within_between", values[who]), ("pair_accuracy", [0.985] * len(values[who])))
        for seed, value in enumerate(series)
    ]


class TestGuesses:
    def test_they_are_held_against_the_median_of_seeds(self):
        # one seed in which FOCA fails decides nothing, nor does one in which joint training fails
        records = records_of(foca=[0.05, 0.06, 0.07, 0.05, 5.0], joint=[0.5, 0.01, 0.28, 90.0, 5.0])
        assert list(times_smaller(records, "linear").values()) == pytest.approx([10, 1 / 6, 4, 1800, 1])
        found = guesses(records)
        assert [guess.found for guess in found] == pytest.approx([0.06, 0.5 / 0.06, 4, 0.985] * 2)
        assert [guess.holds for guess in found] == [True, True, True, False, True, True, True, True]
        assert [guess.seeds_holding for guess in found] == [4, 3, 3, 0, 4, 3, 3, 5]
        assert verdict(records, "MLP").seeds == 5

    def test_what_is_too_large_is_not_met(self):
        found = guesses(records_of(foca=[0.3, 0.3], joint=[0.3, 0.3]))
        assert [guess.holds for guess in found] == [False, False, False, False, False, False, False, True]
        assert found[2].verdict == "**not met**: 1.00 times; 0 of 2 seeds"


@pytest.mark.filterwarnings("ignore:the final head is right on")  # after a few steps
class TestStudy:
    @pytest.fixture
    def heard(self):
        events = []

        def listener(plan, event):
            events.append((plan.method, plan.seed, event["event"]))

        return events, listener

    @pytest.mark.usefixtures("short_last_head")
    def test_it_writes_ledger_picture_and_report_and_reads_finished_runs_back(self, heard, tmp_path):
        events, listener = heard
        ledger = fig1.study(TINY, 1, tmp_path, listener)
        assert ledger == tmp_path / "ledger.md"
        assert [e for e in events if e[2] == "done"] == [(name, 0, "done") for name in VARIANTS]
        assert (tmp_path / "fig1.png").read_bytes().startswith(b"\x89PNG")
        stored = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        measured = {
            row["method"]: row["value"] for row in report["measurements"] if row["name"] == "within_between"
        }
        kept = {
            row["method"]: row["values"]["0"] for row in stored["rows"] if row["name"] == "within_between"
        }
        assert kept == measured
        assert stored["command"] == "python -m papers sato_2019 --only fig1 --seeds 1"
        assert "torch" in stored["versions"]
        text = ledger.read_text("utf-8")
        assert text.count("**met**") + text.count("**not met**") == 8
        assert str(tmp_path) not in text

        events.clear()
        fig1.study(TINY, 1, tmp_path, listener)
        assert [e[2] for e in events] == ["start", "kept"] * 4
        again = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
        assert again["rows"] == stored["rows"]

    @pytest.mark.usefixtures("short_last_head")
    def test_interrupted_it_goes_on(self, heard, monkeypatch, tmp_path):
        events, listener = heard

        def interrupt(plan, event):
            if plan.method == "FOCA, linear heads" and event["event"] == "start":
                raise KeyboardInterrupt

        monkeypatch.setattr(fig1, "as_png", lambda figure: b"")
        with pytest.raises(KeyboardInterrupt):
            fig1.study(TINY, 1, tmp_path, interrupt)
        assert not (tmp_path / "ledger.md").exists()
        fig1.study(TINY, 1, tmp_path, listener)
        assert [e[2] for e in events] == ["start", "kept", "start", "kept", "start", "done", "start", "done"]

    def test_other_settings_are_other_runs(self):
        other = dataclasses.replace(TINY, penalty=2.0)
        changed = [name for name in VARIANTS if run_folder(name, 0, TINY) != run_folder(name, 0, other)]
        assert changed == ["FOCA, linear heads"]
        longer = dataclasses.replace(TINY, epochs_linear=4, epochs_mlp=4)
        assert all(run_folder(name, 0, TINY) != run_folder(name, 0, longer) for name in VARIANTS)

    def test_a_panel_shows_a_finished_run_nearest_the_median_of_all(self, untrained):
        base = untrained("FOCA, MLP heads")
        runs = [dataclasses.replace(base, seed=seed) for seed in range(5)]
        collapsed = FitResult(base.result.model, Status(Outcome.COLLAPSED, 1))
        runs[0] = dataclasses.replace(runs[0], result=collapsed)
        records = [
            Record("toy", base.variant, seed, Measurement("toy", "within_between", value, "ratio", 1))
            for seed, value in enumerate((5.0, 0.3, 0.1, 0.25, 0.26))
        ]
        assert [run.seed for run in fig1.shown_runs(runs, records)] == [4]
        assert fig1.shown_runs(runs[:1], records) == []

    @pytest.mark.usefixtures("short_last_head")
    @pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
    def test_focas_classes_are_three_times_smaller_for_their_distance(self):
        settings = ToySettings(per_class=50, epochs_linear=100, linear_heads=16)
        found = {}
        for name in ("FOCA, linear heads", "joint, linear head"):
            ratios = []
            for seed in range(5):
                data = two_moons(settings, seed)
                model = train_variant(VARIANTS[name], data, settings, seed).model
                ratios.append(within_between(extract_features(model, data), data.labels))
            found[name] = sorted(ratios)[2]
        assert found["joint, linear head"] > 3 * found["FOCA, linear heads"]

    def test_it_is_a_study_of_the_paper(self):
        assert paper("sato_2019").studies["fig1"].place.endswith("fig1:run")
