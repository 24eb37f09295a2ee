"""Fig. 1 and 2 of Wan et al. (2018): regions of the margin, roundness, and pictures with their ledger."""

import dataclasses
import json
import math
import re

import pytest
import torch
from torch import nn

from clearance.data import ImageSet
from clearance.experiments.run import RunPlan
from clearance.heads import GaussianMixture
from clearance.losses.gaussian_mixture import margin_scores
from clearance.models import Classifier
from clearance.records import Report
from papers.engine.catalogue import paper_claims
from papers.engine.study import NoDataError, StudyRequest
from papers.wan_2018 import fig1, protocol
from papers.wan_2018.fig1 import (
    ALPHAS,
    FAINTEST,
    HALF_WIDTH,
    POINTS,
    boundary,
    embedding_picture,
    gap,
    gap_table,
    likelihood_panel,
    margin_picture,
    panel,
    plane_numbers,
    region,
    roundness,
)
from studies.small_runs import grids_here

SHEET = {  # alpha: boundary and gap
    0.01: (0.4988, 0.0025), 0.1: (0.4881, 0.0238), 0.2: (0.4772, 0.0456), 0.3: (0.4673, 0.0655), 1.0: (0.4142, 0.1716)
}  # fmt: skip


class TestRegions:
    @pytest.mark.parametrize("alpha", SHEET)
    def test_boundary_and_gap_are_those_of_the_sheet(self, alpha):
        # the sheet's gap is 1 - 2 t of a rounded t
        assert (round(boundary(alpha), 4), gap(alpha)) == pytest.approx(SHEET[alpha], abs=1e-4)
        assert gap(alpha) == pytest.approx(1 - 2 * boundary(alpha))

    @pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 1.0, 4.0])
    def test_p13_on_the_sphere_the_margin_scores_of_both_classes_are_equal(self, alpha):
        """In five dimensions, against the scores of the loss itself."""
        draws = torch.Generator().manual_seed(0)
        own, other = torch.randn(2, 5, generator=draws, dtype=torch.float64)
        distance, ball = (own - other).norm(), region(alpha)
        directions = nn.functional.normalize(torch.randn(50, 5, generator=draws, dtype=torch.float64), dim=1)
        on_sphere = own + (own - other) * ball.beyond + directions * ball.radius * distance
        halves = torch.stack([0.5 * (on_sphere - mean).square().sum(dim=1) for mean in (own, other)], dim=1)
        labels = torch.zeros(50, dtype=torch.long)
        scores = margin_scores(-halves, halves[:, 0], labels, alpha)
        torch.testing.assert_close(scores[:, 0], scores[:, 1], rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("alpha", [0.1, 1.0])
    def test_the_ball_meets_the_line_between_the_means_at_the_boundary(self, alpha):
        ball = region(alpha)
        assert ball.radius - ball.beyond == pytest.approx(boundary(alpha), rel=1e-12)

    def test_without_a_margin_it_is_a_half_plane(self):
        assert (boundary(0.0), gap(0.0), region(0.0).radius) == (0.5, 0.0, math.inf)

    @pytest.mark.parametrize("find", [boundary, gap, region])
    def test_a_negative_alpha_is_refused(self, find):
        with pytest.raises(ValueError, match=r"`alpha` must be .*got -0\.1"):
            find(-0.1)

    def test_the_table_has_the_sheets_rows(self):
        rows = [line.strip("| ").split(" | ") for line in gap_table().splitlines()[2:]]
        assert [float(row[0]) for row in rows] == list(SHEET)
        assert all(
            (float(row[1]), float(row[2])) == pytest.approx(SHEET[float(row[0])], abs=1.01e-4) for row in rows
        )

    def test_the_picture_shows_the_closed_form(self):
        figure = margin_picture()
        titles = ["alpha 0, no gap", "alpha 0.1, gap 0.0238", "alpha 0.3, gap 0.0655", "alpha 1, gap 0.172"]
        assert [axes.get_title() for axes in figure.axes] == titles
        for axes, alpha in zip(figure.axes, ALPHAS, strict=True):
            inside = [patch.get_extents().x1 for patch in axes.patches]  # pixels
            left = axes.transData.inverted().transform([(edge, 0) for edge in inside])[:, 0]
            # the first two patches are the left class's: they end where its boundary is
            expected = -0.5 + boundary(alpha)
            assert left[0] == pytest.approx(expected, abs=0.01)
            assert axes.get_xlim() == (-HALF_WIDTH, HALF_WIDTH)


class TestRoundness:
    def test_of_a_circle_an_ellipse_and_a_ray(self):
        angles = torch.arange(40) * (2 * math.pi / 40)
        circle = torch.stack([angles.cos(), angles.sin()], dim=1)
        turn = torch.tensor([[0.6, 0.8], [-0.8, 0.6]])
        features = torch.cat([circle + 3, circle * torch.tensor([4.0, 1.0]) @ turn, circle[:, :1] * turn[0]])
        labels = torch.arange(3).repeat_interleave(40)
        torch.testing.assert_close(
            roundness(features, labels, 3),
            torch.tensor([1.0, 0.25, 0.0], dtype=torch.float64),
            atol=1e-3,
            rtol=0,
        )
        torch.testing.assert_close(
            roundness(50 * features, labels, 3)[:2], roundness(features, labels, 3)[:2], atol=1e-6, rtol=0
        )

    def test_a_class_without_extent_has_none(self):
        features = torch.cat([torch.zeros(5, 2), torch.randn(2, 2)])
        labels = torch.tensor([0] * 5 + [1] * 2)
        assert roundness(features, labels, 3).isnan().all()


def plane_model(scale=1.0):
    """The first two pixels are the features; three means in a triangle."""
    head = GaussianMixture(2, 3)
    head.means.data = scale * torch.tensor([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])

    class TwoPixels(nn.Module):
        def forward(self, images):
            return scale * images.flatten(1)[:, :2]

    model = Classifier(TwoPixels(), head)
    model.register_parameter("unused", nn.Parameter(torch.zeros(1)))
    return model.eval()


def triangle(count=30):
    draws = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 3
    means = torch.tensor([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])
    pixels = torch.rand(count, 1, 2, 2, generator=draws)
    pixels.flatten(1)[:, :2] = (means[labels] + 0.05 * torch.randn(count, 2, generator=draws)).clamp(0, 1)
    return ImageSet(pixels, labels, ("a", "b", "c"))


class TestPanels:
    def test_points_means_and_learned_means(self):
        data, model = triangle(), plane_model()
        shown = {exhibit.name: exhibit.columns for exhibit in panel(model, data)}
        assert list(shown) == ["features", "means", "learned means"]
        assert shown["features"]["x"] == pytest.approx(data.images.flatten(1)[:, 0].tolist())
        expected = data.images.flatten(1)[data.labels == 1, 1].mean()
        assert shown["means"]["y"][1] == pytest.approx(float(expected))
        assert shown["learned means"]["x"] == pytest.approx([0.2, 0.8, 0.5])

    def test_many_images_are_thinned_evenly(self):
        (points, *_) = panel(plane_model(), triangle(900))
        assert [points.columns["label"].count(name) for name in "abc"] == [POINTS // 3] * 3

    def test_the_likelihood_is_half_a_squared_distance_below_its_peak(self):
        grid, _ = likelihood_panel(plane_model(20.0), triangle(), triangle(), 0.1)
        x, y, value = (torch.tensor(grid.columns[key]) for key in ("x", "y", "value"))
        means = 20 * torch.tensor([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])
        nearest = 0.5 * torch.cdist(torch.stack([x, y], dim=1), means).square().amin(dim=1)
        torch.testing.assert_close(value, (-nearest).clamp(min=FAINTEST), atol=2e-3, rtol=1e-4)
        assert float(value.min()) == FAINTEST

    def test_attacked_images_are_those_that_fooled_it(self):
        data, model = triangle(), plane_model(10.0)
        assert bool((model(data.images).argmax(dim=1) == data.labels).all())
        _, attacked = likelihood_panel(model, data, data, 0.3)
        columns = attacked.columns
        assert len(columns["x"]) > 0
        assert all(true != taken for true, taken in zip(columns["label"], columns["taken for"], strict=True))
        assert attacked.context["epsilon"] == 0.3
        _, none = likelihood_panel(model, data, data, 1e-4)
        assert len(none.columns["x"]) == 0

    def test_without_a_mixture_there_is_no_likelihood(self):
        model = Classifier(nn.Flatten(), nn.Linear(4, 3)).eval()
        with pytest.raises(TypeError, match=r"must end in a GaussianMixture; got Linear"):
            likelihood_panel(model, triangle(), triangle(), 0.1)

    def test_roundness_is_measured_over_classes(self):
        (found,) = plane_numbers(plane_model(), triangle(90), "train")
        assert (found.name, found.n, found.context) == ("roundness", 3, {"split": "train"})
        assert 0.5 < found.value <= 1


class TestLikelihoodNumber:
    """Images at the means, which FGSM moves by epsilon in both features."""

    @pytest.mark.parametrize(("shift", "area"), [(0.0, 1.0), (0.1, 0.0)])
    def test_it_is_one_where_every_attacked_image_is_less_likely(self, shift, area):
        model = plane_model()
        means = torch.tensor([[0.2, 0.2], [0.8, 0.2], [0.3, 0.8]])
        step = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])  # towards the other means
        model.head.means.data = means.clone()
        images = torch.cat([means - shift * step, torch.zeros(3, 2)], dim=1).reshape(3, 1, 2, 2)
        test = ImageSet(images, torch.arange(3), ("a", "b", "c"))
        found = fig1.likelihood_numbers(model, test, test, 0.1)
        assert [(one.name, one.value, one.n) for one in found] == [("auroc", area, 3), ("auroc", 1.0, 3)]
        settings = {"attack": "FGSM", "box": "white", "epsilon": 0.1}
        assert [one.context for one in found] == [
            {**settings, "means": "learned means"},
            {**settings, "means": "class means"},
        ]
        torch.testing.assert_close(model.head.means.detach(), means)

    def test_another_head_is_refused(self):
        model = Classifier(nn.Flatten(), nn.Linear(4, 2))
        with pytest.raises(TypeError, match="must end in a GaussianMixture; got Linear"):
            fig1.likelihood_numbers(model, triangle(), triangle(), 0.1)

    def test_the_offset_of_learned_means_is_a_part_of_the_squared_distance_to_them(self):
        model = plane_model()
        means = model.head.means.detach()
        apart = torch.tensor([[0.1, 0.0], [-0.1, 0.0]])
        points = torch.cat([mean + 0.3 * torch.tensor([0.0, 1.0]) + apart for mean in means])
        images = torch.cat([points, torch.zeros(6, 2)], dim=1).reshape(6, 1, 2, 2).clamp(0, 1)
        train = ImageSet(images, torch.arange(3).repeat_interleave(2), ("a", "b", "c"))
        found = fig1.offset_number(model, train)
        inside = images.flatten(1)[:, :2]
        own = inside.reshape(3, 2, 2).mean(dim=1)
        assert found.value == pytest.approx(
            float(2 * ((own - means) ** 2).sum() / ((inside.reshape(3, 2, 2) - means[:, None]) ** 2).sum())
        )


@pytest.fixture
def quick(monkeypatch):
    """Networks of two features trained for a few steps in this process."""
    plans: list[RunPlan] = []

    grids_here(monkeypatch, plans)
    full = protocol.plane_recipe

    def recipe(dataset, root=None, seeds=None):
        return dataclasses.replace(full(dataset, root, seeds), steps=60, batch_size=16, train_fraction=0.1)

    monkeypatch.setattr(fig1, "plane_recipe", recipe)
    return plans


class TestStudy:
    @pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
    def test_both_pictures_and_a_ledger_from_one_call(self, quick, tmp_path):
        path = fig1.run(StudyRequest(tmp_path))
        assert [(p.method, p.seed, p.settings.features) for p in quick] == [
            (m, 0, 2) for m in ("softmax", "center", "l-softmax", "gm", "lgm")
        ]
        text = path.read_text("utf-8")
        for name in ("fig1.svg", "fig2.svg"):
            assert text.count(f"]({name})") == 1
            drawn = (tmp_path / name).read_text("utf-8")
            assert drawn.startswith("<svg")
            assert "prefers-color-scheme: dark" in drawn
            assert not re.search(r"#a000[0-9a-f]{2}|#010203|#0a0b0c", drawn)  # placeholders of colours
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        measured = [row for row in report["measurements"] if row["audit"] == "plane"]
        assert {(row["method"], row["context"].get("split")) for row in measured} == {
            *((plan.method, split) for plan in quick for split in ("train", "test")), ("gm", None), ("lgm", None)
        }  # fmt: skip
        assert gap_table() in text
        claims = json.loads((tmp_path / "ledger.json").read_text("utf-8"))["claims"]
        claim = next(row for row in claims if row["id"] == "Q1")
        assert (claim["verdict"], claim["ordering"], claim["reason"]) == (
            "not comparable",
            "cannot tell",
            "1 seed; a verdict needs 5",
        )
        drawn = (tmp_path / "fig1.svg").read_text("utf-8")
        for title in (
            "L-Softmax",
            "GM, alpha 0",
            "L-GM, alpha 1",
            "softmax + center loss",
            "likelihood that L-GM learned",
        ):
            assert title in drawn

    @pytest.mark.parametrize("dataset", ["digits", "mnist"])
    def test_what_differs_from_the_paper_is_said_of_these_networks(self, dataset, tmp_path):
        recipe = protocol.plane_recipe(dataset)
        report = Report({"methods": {"softmax": {}}}, {}, "", "")
        text = fig1.write_ledger(report, dataset, tmp_path).read_text("utf-8")
        assert f"{recipe.steps:,} steps" in text
        assert "two features in place of 100" in text
        assert not any(
            words in text for words in ("30,316", "60 epochs", paper_claims("wan_2018").scaled[dataset])
        )

    def test_without_files_it_says_so(self, tmp_path):
        with pytest.raises(NoDataError, match="needs the files of mnist"):
            fig1.run(StudyRequest(tmp_path, dataset="mnist", root=str(tmp_path / "none")))


def test_a_method_that_did_not_finish_leaves_a_panel_that_says_so():
    figure = embedding_picture({}, ("softmax", "lgm"), "lgm", {})
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["did not finish"] * 2
