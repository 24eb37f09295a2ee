"""The toy of Elsayed et al. (2018): the boundary is exact, and the ledger has what it says."""

import copy
import json
import math
from collections.abc import Sequence

import pytest
import torch

from clearance.records import ExhibitRecord, Report
from clearance.vocabulary import Exhibit
from papers.elsayed_2018 import toy
from papers.elsayed_2018.toy import DISTANCES, ERRORS, along_curve, boundary_points, distances_to, picture
from papers.engine.study import StudyRequest


class TestBoundary:
    def test_a_straight_line_is_met_exactly(self):
        """x + 2y = 1: the distance of a point is |x + 2y - 1| / sqrt 5."""
        curve = boundary_points(lambda at: at @ torch.tensor([1.0, 2.0], dtype=torch.float64) - 1, -2.0, 2.0)
        points = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        exact = (points @ torch.tensor([1.0, 2.0], dtype=torch.float64) - 1).abs() / 5**0.5
        found = distances_to(points, curve)
        assert bool((found >= exact - 1e-12).all())
        # points of the curve are at most h = 4 / 400 * sqrt 2 apart
        h = 0.01 * 2**0.5
        assert bool((found - exact <= h**2 / 8 / exact.clamp(min=h / 8) + 1e-12).all())

    def test_a_circle_is_met_exactly(self):
        curve = boundary_points(lambda at: 0.09 - (at - 0.5).square().sum(dim=1), 0.0, 1.0)
        inside = torch.tensor([[0.5, 0.5], [0.5, 0.7], [0.1, 0.1]])
        exact = torch.tensor([0.3, 0.1, 0.4 * 2**0.5 - 0.3], dtype=torch.float64)
        torch.testing.assert_close(distances_to(inside, curve), exact, rtol=0, atol=1e-4)

    def test_no_boundary_is_no_points_and_bad_squares_are_refused(self):
        assert len(boundary_points(lambda at: at[:, 0] + 10, 0.0, 1.0, 5)) == 0
        with pytest.raises(ValueError, match="`resolution`"):
            boundary_points(lambda at: at[:, 0], 0.0, 1.0, 1)
        with pytest.raises(ValueError, match="`low` must be below `high`"):
            boundary_points(lambda at: at[:, 0], 1.0, 1.0)


class TestToy:
    SETTINGS = toy.ToySettings(per_class=6, test_per_class=20, steps=60, resolution=40, lr=0.02)

    def test_both_losses_start_alike_and_are_measured_alike(self):
        both = {loss: toy.run_toy(loss, self.SETTINGS, 0) for loss in toy.LOSSES}
        names = [[r.measurement.name for r in one.records] for one in both.values()]
        assert names[0] == names[1] == [one.name for one in (*ERRORS, *DISTANCES)]
        counted = {r.measurement.name: r.measurement.n for r in both["margin-l2"].records}
        assert (counted.pop("test_error"), set(counted.values())) == (2 * 20, {2 * 6})
        values = [[r.measurement.value for r in one.records] for one in both.values()]
        assert values[0] != values[1]
        again = toy.run_toy("margin-l2", self.SETTINGS, 0)
        assert [r.measurement.value for r in again.records] == values[1]

    def test_distances_agree_with_the_networks_own_labels(self):
        """A point moved by less than its distance, in any direction, keeps its label; by a bit more, some lose it."""
        train = toy.moons(6, 0.1, 0)
        model = toy.trained("cross-entropy", train, self.SETTINGS, 0)
        network = copy.deepcopy(model).double().eval()

        @torch.no_grad()
        def score(points):
            logits = network(points[:, :, None, None])
            return logits[:, 1] - logits[:, 0]

        curve = boundary_points(score, 0.0, 1.0, 200)
        points = train.images.flatten(1).double()
        found = distances_to(points, curve)
        angles = torch.linspace(0, 2 * math.pi, 2000, dtype=torch.float64)
        around = torch.stack([angles.cos(), angles.sin()], dim=1)
        for point, distance in zip(points, found, strict=True):
            side = score(point[None])[0] > 0
            assert bool(((score(point + 0.97 * distance * around) > 0) == side).all())
            assert not bool(((score(point + 1.01 * distance * around) > 0) == side).all())

    def test_the_ledger_has_a_row_for_each_loss_and_paired_verdicts(self, monkeypatch, tmp_path):
        monkeypatch.setattr(toy, "ToySettings", lambda: self.SETTINGS)
        path = toy.run(StudyRequest(tmp_path, seeds=2))
        text = path.read_text("utf-8")
        assert "| cross-entropy | " in text
        assert "| margin-l2 | " in text
        assert "paired over seeds: test error" in text
        assert len(list((tmp_path / "exhibits").glob("*boundary*"))) == 4
        assert "(toy.png)" in text
        assert (tmp_path / "toy.png").read_bytes()[1:4] == b"PNG"

        ledger = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
        errors = {(row["label"], row["method"]): row for row in ledger["rows"]}
        assert len(errors) == 8
        margin = errors["test error", "margin-l2"]
        assert f"{100 * margin['over_seeds']['mean']:.1f} %" in text
        own, other = margin["values"], errors["test error", "cross-entropy"]["values"]
        gaps = [own[seed] - other[seed] for seed in ("0", "1")]
        assert margin["against"]["cross-entropy"]["difference"] == pytest.approx(sum(gaps) / 2)


class TestPicture:
    def test_a_curve_is_walked_from_end_to_end_whatever_the_order_of_its_points(self):
        angles = torch.linspace(0, math.pi, 60)[
            torch.randperm(60, generator=torch.Generator().manual_seed(0))
        ]
        x, _ = along_curve(angles.cos().tolist(), angles.sin().tolist())
        assert list(x) in (sorted(x), sorted(x, reverse=True))

    def test_two_parts_of_a_boundary_are_not_joined(self):
        x, y = along_curve([0, 0.1, 0.2, 5, 5.1, 5.2], [0] * 6)
        assert [bool(gap) for gap in (x != x)] == [False, False, False, True, False, False, False]
        assert len(y) == 7

    def test_every_seed_has_a_panel_with_both_boundaries(self):
        curve: dict[str, Sequence[object]] = {
            "x": [0.1, 0.5, 0.9, 0.2],
            "y": [0.5] * 3 + [0.9],
            "label": ["boundary"] * 3 + ["upper"],
        }
        exhibits = tuple(
            ExhibitRecord("toy", loss, seed, Exhibit("toy", "boundary", "scatter", curve, "c"))
            for seed in (0, 1)
            for loss in toy.LOSSES
        )
        panels = [a for a in picture(Report({}, {}, "", "", (), exhibits, ())).axes if a.get_visible()]
        assert [a.get_title() for a in panels] == ["seed 0", "seed 1"]
        assert all(len(a.lines) == 2 for a in panels)
