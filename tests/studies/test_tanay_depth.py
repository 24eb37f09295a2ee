"""Depth and weight decay, the question that Tanay and Griffin (2018) leave open: a tiny study, and its claim."""

import dataclasses
import itertools
import json
import statistics

import pytest
import torch

from clearance.records import Record
from clearance.vocabulary import Measurement
from papers.engine.ledger import JudgedStudy
from papers.engine.study import StudyRequest
from papers.tanay_2018 import depth, networks


class TestDepth:
    SETTINGS = depth.DepthSettings(
        layers=(1, 2), decays=(0.0, 1e-3, 5.0), epochs=2, per_class=20, held_out=10, images=40, search=4
    )

    def test_ratios_are_those_of_networks_with_and_without_the_chosen_decay(self, tmp_path):
        path = depth.study(self.SETTINGS, StudyRequest(tmp_path, seeds=2))
        found = {
            file.stem: json.loads(file.read_text("utf-8"))["found"]
            for file in (tmp_path / "measured").iterdir()
        }
        assert len(found) == 2 * 2 * 3
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        for layers, seed in itertools.product((1, 2), (0, 1)):
            chosen = depth.chosen_decay(self.SETTINGS, layers, found, 2)
            rows = [
                one
                for one in report["measurements"]
                if (one["context"]["layers"], one["seed"]) == (layers, seed)
            ]
            ratio = {one["name"]: one["value"] for one in rows}["distance_ratio"]
            high, plain = (found[f"{layers}-decay{d:g}-{seed}"]["distances"] for d in (chosen, 0.0))
            both = [k for k in range(40) if high[k] is not None and plain[k] is not None]
            assert 0 < len(both) < 40  # some network has an image wrong
            middles = (statistics.median(side[k] for k in both) for side in (high, plain))
            assert ratio == pytest.approx(next(middles) / next(middles))
        text = path.read_text("utf-8")
        assert "| ratio | " in text
        decays = {layers: depth.chosen_decay(self.SETTINGS, layers, found, 2) for layers in (1, 2)}
        assert text.count("the strongest tried") == sum(decay == 5.0 for decay in decays.values())
        assert text.count("none allowed") == sum(decay == 0 for decay in decays.values())
        assert "Did not finish" not in text
        claims = {
            row["id"]: row for row in json.loads((tmp_path / "ledger.json").read_text("utf-8"))["claims"]
        }
        assert claims["D1"]["verdict"] == "not run"  # no network of eight layers here
        assert "layers" in claims["D1"]["reason"] or "measured" in claims["D1"]["reason"]

    @pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
    def test_a_perceptron_whose_numbers_overflow_is_told_and_stops_nothing(self, tmp_path):
        settings = dataclasses.replace(self.SETTINGS, layers=(2,), decays=(0.0,), lr=1e12)
        path = depth.study(settings, StudyRequest(tmp_path, seeds=1))
        assert "Did not finish: 2-decay0-0: collapsed at step 2" in path.read_text("utf-8")

    def test_decays_are_chosen_on_images_that_no_network_was_trained_on(self):
        train, _ = networks.images_of("digits", None, 20)
        kept = depth.held_out_images("digits", None, 20, 10)
        assert torch.bincount(kept.labels).tolist() == [10] * 10
        assert not bool((train.images[:, None] == kept.images[None]).flatten(2).all(2).any())

    def test_a_claim_holds_where_shallow_networks_gain_more_under_five_seeds(self):
        def records(shallow, deep):
            return [
                Record("mnist", "high-decay", seed, Measurement(
                    "depth", "distance_ratio", value + 0.01 * seed, "ratio", 10, better="higher",
                    context={"layers": layers}))
                for seed in range(5) for layers, value in ((1, shallow), (8, deep))
            ]  # fmt: skip

        study = JudgedStudy("tanay_2018", ("depth",), "mnist")
        verdicts = {j.claim.id: j.words for j in study.judgements(records(2.0, 1.2))}
        assert verdicts["D1"] == "expected only; ordering here: holds"
        assert verdicts["N1"] == "not run"
        # the same spread the other way round, which is not the same difference in every seed
        found = {j.claim.id: j.ordering for j in study.judgements(records(1.2, 2.0))}
        assert found["D1"] == "does not hold"
