"""What the recipes and studies of papers say and take, before anything runs."""

import importlib
import inspect
from pathlib import Path

import pytest

from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import build_loss
from clearance.experiments.recipe import read_recipe
from clearance.models import extractors  # noqa: F401 - the recipes' models are there
from papers.elsayed_2018.protocol import small_data_recipes
from papers.engine.catalogue import PAPERS, full_recipe, paper, paper_claims, paper_datasets, paper_recipe
from papers.engine.reproduce import reproduce
from papers.engine.study import StudyRequest
from papers.engine.verify import ROOT
from papers.sato_2019 import fine_tuning
from papers.tanay_2018 import depth, lenet
from papers.wan_2018 import accuracy

CLAIMS = paper_claims("sato_2019")


WITH_RECIPES = [name for name in PAPERS if name != "tanay_2018"]


# in tables, and without a part in the claims: not on MNIST, or only on CIFAR-10
BESIDE = {
    "elsayed_2018": {"margin-l1-input", "margin-linf-input"},
    "sato_2019": {"center", "lgm"},
    "wan_2018": set[str](),
}


class TestPlans:
    @pytest.mark.parametrize("paper", WITH_RECIPES)
    def test_every_recipe_of_every_paper_can_be_planned(self, paper):
        claims = paper_claims(paper)
        assert paper_datasets(paper)
        for dataset in paper_datasets(paper):
            recipe = paper_recipe(paper, dataset)
            assert recipe.dataset == dataset
            assert recipe.seeds >= 5
            assert claims.method in recipe.methods
            assert set(recipe.methods) - BESIDE[paper] <= {claims.method, *claims.rivals}
            assert claims.scaled[dataset]
        # no rival that nothing trains
        trained = {n for dataset in paper_datasets(paper) for n in paper_recipe(paper, dataset).methods}
        assert trained - BESIDE[paper] == {claims.method, *claims.rivals}

    @pytest.mark.parametrize("paper", ["sato_2019", "elsayed_2018"])
    def test_methods_are_the_same_on_every_dataset(self, paper):
        """Not so for wan_2018, whose CIFAR-100 has further margins; elsayed_2018 has fewer on CIFAR-10."""
        named = {
            dataset: tuple(name for name in paper_recipe(paper, dataset).methods if name not in BESIDE[paper])
            for dataset in paper_datasets(paper)
        }
        if paper == "elsayed_2018":
            assert set(named.pop("cifar10")) < set(named["mnist"])
        assert len(set(named.values())) == 1

    @pytest.mark.parametrize("dataset", paper_datasets("sato_2019"))
    def test_what_the_claims_read_is_measured(self, dataset):
        recipe = paper_recipe("sato_2019", dataset)
        read = {reading.audit for claim in CLAIMS.claims for reading in claim.readings}
        assert read | {"neural_collapse", "churn", "class_scatter"} <= set(recipe.audits)
        AuditPlan.of_recipe(recipe)

    def test_what_the_paper_says_of_its_two_datasets(self):
        ten, hundred = full_recipe("sato_2019", "cifar10"), paper_recipe("sato_2019", "cifar100")
        foca = [(m.per_class, m.reuse, m.head_steps) for m in (ten.methods["foca"], hundred.methods["foca"])]
        assert foca == [(10, 1, 32), (10, 8, 64)]
        assert [r.methods["dropout"].hidden for r in (ten, hundred)] == [(1024, 1024), (512, 512)]
        assert [r.model for r in (ten, hundred)] == ["convnet32", "vgg16"]
        assert {m.hidden for r in (ten, hundred) for n, m in r.methods.items() if n != "dropout"} == {
            (128, 128)
        }

    def test_wrong_names_get_the_nearest(self):
        with pytest.raises(ValueError, match="Did you mean 'sato_2019'"):
            reproduce("sato-2018")
        with pytest.raises(ValueError, match="Did you mean 'cifar10'"):
            reproduce("sato_2019", "cifar-10")
        with pytest.raises(ValueError, match="Did you mean 'weakness'"):
            reproduce("sato_2019", only="weaknes")
        with pytest.raises(ValueError, match="has its own dataset; got dataset 'mnist'"):
            reproduce("sato_2019", "mnist", only="weakness")


@pytest.mark.parametrize("place", [study.place for name in PAPERS for study in paper(name).studies.values()])
def test_every_study_takes_a_request(place):
    module, _, function = place.partition(":")
    found = inspect.signature(getattr(importlib.import_module(module), function), eval_str=True)
    required = {one.name: one.annotation for one in found.parameters.values() if one.default is one.empty}
    assert (required, found.return_annotation) == ({"request": StudyRequest}, Path)


def test_a_study_is_given_what_was_asked(monkeypatch, tmp_path):
    asked = []

    def study(request):
        asked.append(request)
        return request.out / "ledger.md"

    monkeypatch.setattr(fine_tuning, "run", study)
    monkeypatch.setattr(accuracy, "run", study)
    found = reproduce("sato_2019", only="fine-tuning", root="here", seeds=3, engine=2, out=tmp_path)
    assert found.ledger == tmp_path / "ledger.md"
    reproduce("wan_2018", "mnist", only="accuracy", out=tmp_path)
    assert asked == [
        StudyRequest(tmp_path, seeds=3, engine=2, root="here"), StudyRequest(tmp_path, dataset="mnist")
    ]  # fmt: skip


def test_where_there_is_nothing_for_digits_a_dataset_must_be_given(tmp_path):
    with pytest.raises(
        ValueError, match=r"got 'digits', which is taken where none is given\. Pass --dataset"
    ):
        reproduce("tanay_2018", only="lenet", out=tmp_path)


@pytest.mark.parametrize("dataset", [None, "mnist"])
@pytest.mark.parametrize(
    ("paper", "studies"),
    [
        ("tanay_2018", r"svm, lenet, adversarial, depth\."),
        ("wan_2018", "fig1, accuracy, fgsm"),  # its recipes are where the search for learning rates began
        ("elsayed_2018", "noise"),
    ],
)
def test_a_paper_of_studies_alone_asks_for_one(paper, studies, dataset, tmp_path):
    with pytest.raises(
        ValueError, match=rf"{paper} is tried by its studies; name one with --only.*{studies}"
    ):
        reproduce(paper, dataset, out=tmp_path)


@pytest.mark.parametrize(
    ("paper", "dataset", "only", "command"),
    [
        ("tanay_2018", "mnist", "svm", "--only svm --dataset mnist --root ROOT --seeds 2"),
        ("sato_2019", None, "causes", "--only causes --root ROOT --seeds 2"),
    ],
)
def test_without_data_the_command_that_is_told_asks_for_the_same(paper, dataset, only, command, tmp_path):
    found = reproduce(paper, dataset, only=only, seeds=2, out=tmp_path)
    assert found.missing
    assert f"Run `python -m papers {paper} {command}`." in found.ledger.read_text("utf-8")


def test_the_number_of_seeds_that_a_study_takes_is_the_one_that_was_fixed():
    """More are not judged and fewer get no verdict, so that no verdict rests on when somebody stopped."""
    fixed = {name: paper_claims(name).seeds for name in PAPERS}
    assert {paper_recipe("sato_2019", d).seeds for d in paper_datasets("sato_2019")} == {5}
    assert fixed["sato_2019"]["recipe"] == 5
    for dataset in paper_datasets("elsayed_2018"):
        draws = {recipe.seeds for recipe in small_data_recipes(dataset).values()}
        assert draws == {paper_claims("elsayed_2018").seeds_of("small-data", dataset)}
        assert paper_recipe("elsayed_2018", dataset).seeds == fixed["elsayed_2018"]["noise"]
    for dataset in paper_datasets("wan_2018"):
        assert paper_recipe("wan_2018", dataset).seeds == fixed["wan_2018"]["accuracy"]
    assert fixed["tanay_2018"] == {"lenet": lenet.SEEDS, "adversarial": lenet.SEEDS, "depth": depth.SEEDS}
    for name in PAPERS:
        judged = {claim.study for claim in paper_claims(name).claims if claim.study and claim.readings}
        assert judged - {"svm"} <= set(fixed[name])


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/results/**/*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_beside_results_is_read_and_its_losses_are_built(path):
    assert all(build_loss(method) for method in read_recipe(path).methods.values())
