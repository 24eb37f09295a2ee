"""LeNet and perceptrons of Tanay and Griffin (2018): first weights, tiny studies, and what their ledgers say."""

import dataclasses
import json
import math

import pytest
import torch

from clearance.experiments.datasets import load_dataset
from clearance.records import Record
from clearance.research import derived_seed, fixed_images
from clearance.vocabulary import Measurement
from papers.engine.reproduce import reproduce
from papers.engine.study import StudyRequest
from papers.tanay_2018 import lenet, networks
from papers.tanay_2018.lenet import attacked_network, error_curves, paired_lengths, smoothness
from papers.tanay_2018.seed_tables import SeedRow, factor_in_words, table
from studies.small_runs import write_idx  # on pytest's path

SETTINGS = lenet.LeNetSettings(
    epochs=2, per_class=12, batch_size=30, images=10, grey_levels=30.0, ascent=40, search=4
)
TASK = {"dataset": "mnist", "init": "he", "decay": 1e-4, "seed": 0, "epochs": 1, "per_class": 12, "batch_size": 30,
        "lr": 5e-4}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A few images of rows in MNIST's format."""
    folder = tmp_path_factory.mktemp("files")
    write_idx(folder / "mnist", "train", 200)
    write_idx(folder / "mnist", "t10k", 60)
    return str(folder)


class TestNetworks:
    def test_first_weights_have_the_sizes_that_they_are_called_by(self, root):
        train, _ = networks.images_of("mnist", root, 12)
        sizes = {
            "extractor.conv1": 25 * 20,
            "extractor.conv2": 25 * 50,
            "extractor.fc1": 16 * 500,
            "head.0": 10,
        }
        inits: tuple[networks.Init, ...] = ("he", "small")
        for init in inits:
            model = networks.lenet_network(train, init, seed=0)
            layers = {
                n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)
            }
            assert set(layers) == set(sizes)
            for name, fan_out in sizes.items():
                small = init == "small" or name == "extractor.conv1"
                expected = 0.01 if small else math.sqrt(2 / fan_out)
                # the standard deviation of n normal numbers is known to 1 / sqrt(2 n)
                weight = layers[name].weight.detach()
                assert float(weight.std()) == pytest.approx(
                    expected, rel=4 / math.sqrt(2 * weight.numel())
                ), name
                assert not bool(model.state_dict()[f"{name}.bias"].any())

    def test_first_weights_are_the_seed_s(self, root):
        train, _ = networks.images_of("mnist", root, 12)
        first, again, other = (
            networks.lenet_network(train, "he", seed).state_dict()["extractor.conv2.weight"]
            for seed in (1, 1, 2)
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_it_sees_grey_levels_minus_the_mean_training_image(self, root):
        train, test = networks.images_of("mnist", root, 12)
        model = networks.lenet_network(train, "small", seed=0)
        seen = model.outputs(test.images, layers=("extractor.centre",)).activations["extractor.centre"]
        torch.testing.assert_close(seen, 255 * (test.images - train.images.mean(0)), rtol=1e-4, atol=1e-3)

    def test_images_are_the_first_of_each_class(self, root):
        train, test = networks.images_of("mnist", root, 12)
        assert torch.bincount(train.labels).tolist() == [12] * 10
        # labels of the file go round, so that the first twelve of each class are its first 120 images
        assert torch.equal(train.images, load_dataset("mnist", "train", root).images[:120])
        assert len(test) == 60

    def test_perceptrons_have_so_many_layers(self):
        train, _ = networks.images_of("digits", None, 10)
        for layers in (1, 2, 4):
            model = networks.deep_network(train, layers, seed=0)
            matrices = [p for p in model.parameters() if p.ndim == 2]
            assert len(matrices) == layers
            assert model(train.images[:2]).shape == (2, 10)


class TestAttacked:
    def test_every_network_is_made_equally_sure_first(self, root, tmp_path):
        task = {**TASK, "images": 10, "grey_levels": 30.0, "ascent": 200, "search": 4}
        found = attacked_network(task, root, str(tmp_path))
        numbers = {row["name"]: row["value"] for row in found["records"]}
        result, _, test = networks.trained(TASK, root, str(tmp_path))
        with torch.no_grad():
            sure = (result.model(test.images) / numbers["temperature"]).softmax(1).amax(1)
        assert float(sure.double().quantile(0.5)) == pytest.approx(0.95, abs=1e-4)
        assert numbers["reached"] == 1.0
        sheet = found["sheet"]
        assert sheet["label"] == [str(k) for k in range(10)]
        assert sheet["target"] == [str((k + 1) % 10) for k in range(10)]
        assert min(sheet["target_confidence"]) >= 0.949
        change = torch.tensor(sheet["adversarial"]) - torch.tensor(sheet["image"])
        assert change.flatten(1).norm(dim=1).tolist() == pytest.approx(sheet["norm"], abs=0.02)
        assert {row["context"]["init"] for row in found["records"]} == {"he"}

    def test_what_is_not_reached_has_no_length_and_is_as_sure_as_it_is(self, root, tmp_path):
        """One short step: the sheet has the target's probability, not that of the class that leads."""
        task = {**TASK, "images": 10, "grey_levels": 0.01, "ascent": 1, "search": 4}
        found = attacked_network(task, root, str(tmp_path))
        numbers = {row["name"]: row["value"] for row in found["records"]}
        assert numbers["reached"] < 1
        lengths = found["lengths"]["norm_at_confidence"]
        assert sum(length is not None for length in lengths) == round(10 * numbers["reached"])
        result, _, test = networks.trained(TASK, root, str(tmp_path))
        some = fixed_images(test, 10, derived_seed(0, "tanay-2018"))
        with torch.no_grad():
            sure = (result.model(some.images) / numbers["temperature"]).softmax(1)
        rows = [int((some.labels == k).nonzero()[0]) for k in range(10)]
        own = [float(sure[row, k]) for k, row in enumerate(rows)]
        target = [float(sure[row, (k + 1) % 10]) for k, row in enumerate(rows)]
        assert found["sheet"]["confidence"] == pytest.approx(own, abs=1e-3)
        assert found["sheet"]["target_confidence"] == pytest.approx(target, abs=0.05)
        assert min(target) < 0.5

    def test_lengths_are_over_the_images_that_both_networks_of_a_pair_have_of_both_kinds(self):
        tasks = {
            f"{decay:g}-{seed}": {"dataset": "mnist", "init": "he", "decay": decay, "seed": seed}
            for decay in (0.1, 1e-4) for seed in (0, 1)
        }  # fmt: skip
        rows = {
            "0.1-0": ([4.0, 8.0, None, 100.0, 6.0], [1.0, 2.0, 3.0, 4.0, None]),
            "0.0001-0": ([1.0, 3.0, 50.0, None, 7.0], [5.0, 6.0, 7.0, 8.0, 9.0]),
            "0.1-1": None,
            "0.0001-1": ([2.0, None, 6.0, 1.0, None], [1.0, 2.0, 3.0, None, 5.0]),
        }
        kinds = ("norm_at_confidence", "minimum_norm")
        found = {
            name: {"lengths": None if row is None else dict(zip(kinds, row, strict=True))}
            for name, row in rows.items()
        }
        measured = {
            (r.method, r.seed, r.measurement.name): r.measurement for r in paired_lengths(found, tasks)
        }
        assert {key: (one.value, one.n) for key, one in measured.items()} == {
            ("high-decay", 0, kinds[0]): (6.0, 2), ("high-decay", 0, kinds[1]): (1.5, 2),
            ("low-decay", 0, kinds[0]): (2.0, 2), ("low-decay", 0, kinds[1]): (5.5, 2),
            # its counterpart diverged
            ("low-decay", 1, kinds[0]): (4.0, 2), ("low-decay", 1, kinds[1]): (2.0, 2),
        }  # fmt: skip
        assert {one.context["init"] for one in measured.values()} == {"he"}

    @pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
    def test_a_diverged_network_is_told_and_stops_nothing(self, root, tmp_path):
        """A step size at which the loss overflows at once."""
        out = tmp_path / "lenet-mnist"
        settings = dataclasses.replace(SETTINGS, lr=1e6, epochs=1, clip_norm=None)
        request = StudyRequest(out, seeds=1, dataset="mnist", root=root)
        path = lenet.study(settings, ("lenet", "adversarial"), request, out / "networks")
        assert "Did not finish: high-decay-he-0: diverged" in path.read_text("utf-8")
        assert not list(out.glob("adversarial-*.png"))


class TestLeNetStudy:
    @pytest.mark.slow
    def test_both_parts_are_told_and_adversarial_images_need_no_new_networks(
        self, root, tmp_path, monkeypatch
    ):
        out = tmp_path / "lenet-mnist"
        request = StudyRequest(out, seeds=1, dataset="mnist", root=root)
        path = lenet.study(SETTINGS, ("lenet",), request, out / "networks")
        text = path.read_text("utf-8")
        for part in ("## Errors and weights", "| RMS of Conv2 |", "first 12 images"):
            assert part in text
        for name in ("errors.svg", "filters.png"):
            assert (out / name).stat().st_size > 1000
        assert str(tmp_path) not in text
        self.check_measured(out, ("N1", "N2", "N3", "N4", "N5", "N6"))
        before = {p: p.stat().st_mtime_ns for p in (out / "networks").rglob("*.safetensors")}
        assert len(before) >= 4
        other = tmp_path / "adversarial-mnist"
        monkeypatch.setattr(lenet, "INITS", {"mnist": ("he",)})  # the others would only take longer
        again = lenet.study(
            SETTINGS, ("adversarial",), dataclasses.replace(request, out=other), out / "networks"
        )
        assert {p: p.stat().st_mtime_ns for p in (out / "networks").rglob("*.safetensors")} == before
        assert "## Errors and weights" not in again.read_text("utf-8")
        assert "## Adversarial images" in again.read_text("utf-8")
        assert (other / "adversarial-high-decay-he.png").stat().st_size > 1000
        self.check_measured(other, ("A1", "A2"))

    def test_error_curves_hold_every_network_s_last_error(self):
        def highest(*errors):
            rows = [{"epoch": k, "test_error": e, "train_error": 0.0} for k, e in enumerate(errors)]
            return error_curves({("high-decay", "he"): [{"history": rows}]}).axes[0].get_ylim()[1]

        assert highest(0.9, 0.01) == 6
        assert highest(0.9, 0.5) == pytest.approx(55)

    def test_a_unit_in_words_stands_once_in_a_row(self):
        one = Measurement("targeted", "norm", 1.5, "pixel units", n=3)
        text = table(
            [Record("digits", "a", 0, one)], [SeedRow("length", "targeted", "norm")], {"A": ("a", {})}
        )
        assert text.splitlines()[-1] == "| length, pixel units | 1.50 |  |"

    def check_measured(self, out, claims):
        """A seed is too few for a verdict, but what it would rest on was measured."""
        rows = {row["id"]: row for row in json.loads((out / "ledger.json").read_text("utf-8"))["claims"]}
        for claim in claims:
            assert {"cannot tell", "not judged"} & {rows[claim]["verdict"], rows[claim]["ordering"]}, claim
            judged = [reading for reading in rows[claim]["readings"] if reading["role"] == "verdict"]
            assert judged, claim
            assert all(reading["compared"] for reading in judged), claim
        assert rows["S1"]["verdict"] == rows["D1"]["verdict"] == "not run"

    def test_networks_beside_are_found(self, root, tmp_path, monkeypatch):
        given = []
        monkeypatch.setattr(lenet, "study", lambda *args: given.append(args[-1]))
        (tmp_path / "lenet-mnist" / "networks").mkdir(parents=True)
        for out in (tmp_path / "adversarial-mnist", tmp_path / "elsewhere" / "adversarial-mnist"):
            lenet.run_adversarial(StudyRequest(out, seeds=1, dataset="mnist", root=root))
        assert given == [
            tmp_path / "lenet-mnist" / "networks",
            tmp_path / "elsewhere" / "adversarial-mnist" / "networks",
        ]

    def test_without_files_nothing_is_trained(self, tmp_path):
        for only in ("lenet", "adversarial", "depth"):
            found = reproduce("tanay_2018", "mnist", only=only, out=tmp_path / only)
            assert found.missing


class TestTables:
    def records(self):
        values = {("low", 0): 1.0, ("low", 1): 3.0, ("high", 0): 2.0, ("high", 1): 6.0}
        return [
            Record("d", method, seed, Measurement("a", "norm", value, "", 3, context={"init": "he"}))
            for (method, seed), value in values.items()
        ]

    def test_means_and_factors_by_hand(self):
        norm = SeedRow("norm", "a", "norm", {}, "1.77")
        low, high = (("low", {"init": "he"}), ("high", {"init": "he"}))
        text = table(self.records(), [norm], {"low": low, "high": high})
        assert "| norm | 2.00 ± 1.41 | 4.00 ± 2.83 | 1.77 |" in text
        assert factor_in_words(self.records(), norm, high, low).startswith("2.0×")
        assert factor_in_words(self.records(), norm, high, ("none", {})) == "no ratio"
        assert "norm |" not in table(self.records(), [SeedRow("norm", "b", "norm")], {"low": low})


def test_smoothness_is_that_of_known_filters_whatever_their_size():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 5, 5, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij")
    board = (1.0 - 2 * ((rows + columns) % 2))[None]
    found = {
        name: [one.value for one in smoothness(size * some)]
        for size in (1.0, 0.01)
        for name, some in (("noise", noise), ("board", board), ("flat", torch.ones(3, 5, 5)))
    }
    assert found["noise"] == pytest.approx(
        [2 / math.pi**0.5, math.pi / 16], rel=0.03
    )  # a disc's share of a square
    assert found["board"][0] == pytest.approx(2.0)
    assert found["board"][1] < 0.1
    assert found["flat"][0] == 0.0
    assert found["flat"][1] > 0.8
    assert smoothness(torch.zeros(2, 5, 5)) == smoothness(torch.full((2, 5, 5), torch.nan)) == []
