"""Papers by name: description, claims, recipes and studies."""

import dataclasses
import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from clearance import Method
from clearance.research import Recipe, check_choice, from_tree
from papers.engine.claims import PaperClaims, parse_claims
from papers.engine.judging import Judgement
from papers.engine.study import DEFAULT_DATASET, StudyRequest

FULL = "full"  # the folder of recipes for a GPU, where those of the studies are scaled down
PAPERS = ("sato_2019", "elsayed_2018", "wan_2018", "tanay_2018")


@dataclass(frozen=True)
class Study:
    """A study of a paper.

    Args:
        place: ``module:function``; the function takes a :class:`papers.engine.study.StudyRequest` and returns the
            ledger's path.
        summary: One line.
        rooted: Whether it reads files below the request's ``root``; a study with `datasets` does.
        datasets: The datasets that it takes; none if it has its own.
        judged: ``module:function`` that judges a committed ledger from its ``ledger.json`` and its folder, if the
            verdicts rest on something else than the values of seeds.
        passages: ``module:function`` that writes passages of a committed ``ledger.md`` again, from the same two, where
            they have medians or counts.
    """

    place: str
    summary: str
    rooted: bool = False
    datasets: tuple[str, ...] = ()
    judged: str = ""
    passages: str = ""

    def judge(self, tree: Mapping[str, Any], folder: Path) -> tuple[Judgement, ...]:
        """The claims of a committed ledger, judged by `judged`."""
        found: tuple[Judgement, ...] = _found(self.judged)(tree, folder)
        return found

    def passages_again(self, tree: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
        """What `passages` writes; nothing without it."""
        return tuple(_found(self.passages)(tree, folder)) if self.passages else ()

    def run(self, request: StudyRequest) -> Path:
        """Run the study; the path of its ledger."""
        path: Path = _found(self.place)(request)
        return path


@dataclass(frozen=True)
class Paper:
    """The description of a paper, ``ABOUT`` in its folder's ``__init__.py``.

    Args:
        title: Of the paper, with where it appeared.
        studies: By the names that ``--only`` takes.
        full_protocol: ``module:function`` that gives the paper's training in full size as a recipe, where the studies
            are scaled down for a CPU.
    """

    title: str
    studies: Mapping[str, Study]
    full_protocol: str = ""


def paper(name: str) -> Paper:
    """A paper by name.

    Raises:
        ValueError: If there is no such paper.

    >>> list(paper("sato_2019").studies)[:2]
    ['weakness', 'new-classes']
    """
    check_choice("paper", name, PAPERS)
    about: Paper = importlib.import_module(f"papers.{name}").ABOUT
    return about


def paper_claims(name: str) -> PaperClaims:
    """Every claim of a paper.

    Raises:
        ValueError: If there is no such paper.

    >>> [claim.id for claim in paper_claims("sato_2019").claims][:3]
    ['T1', 'T2', 'A1']
    """
    return parse_claims(_folder(name).joinpath("claims.toml").read_text("utf-8"), f"{name}/claims.toml")


def paper_datasets(name: str) -> tuple[str, ...]:
    """Datasets for which a paper has a recipe.

    >>> paper_datasets("sato_2019"), paper_datasets("tanay_2018")
    (('cifar10', 'cifar100', 'digits', 'mnist'), ())
    """
    folder = _folder(name).joinpath("recipes")
    files = (file.name for file in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def whole_recipe(name: str, dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe that tries a paper's claims all together, as :func:`paper_recipe`, of which studies may vary it.

    Raises:
        ValueError: As there, and if the claims are judged only by studies, which choose their own settings.

    >>> sorted(whole_recipe("sato_2019", "digits").methods)[:2]
    ['batchnorm', 'dropout']
    """
    claims = paper_claims(name).claims
    if not any(claim.readings and not claim.study and not claim.recalled for claim in claims):
        raise ValueError(
            f"{name} is tried by its studies; name one with --only (`only`): {', '.join(paper(name).studies)}."
        )
    return paper_recipe(name, dataset, root, seeds)


def paper_recipe(name: str, dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe with which a paper's claims are tried on a dataset, or from which its studies start.

    Args:
        name: The paper.
        dataset: One of :func:`paper_datasets`.
        root: The folder that holds the dataset's files.
        seeds: How many seeds; those of the recipe by default. A verdict needs five.

    Raises:
        ValueError: If there is no such paper, or it has no recipe for the dataset.

    >>> paper_recipe("sato_2019", "digits").seeds
    5
    """
    _check_dataset(dataset, paper_datasets(name))
    return _read_recipe(name, f"{dataset}.yaml", root, seeds)


def _read_recipe(name: str, file: str, root: str | None, seeds: int | None) -> Recipe:
    text = _folder(name).joinpath("recipes", file).read_text("utf-8")
    recipe = from_tree(yaml.safe_load(text), f"{name}/recipes/{file}")
    return dataclasses.replace(recipe, root=root, seeds=recipe.seeds if seeds is None else seeds)


def with_rates(recipe: Recipe, name: str, condition: str) -> Recipe:
    """The recipe with the learning rates that a paper's search chose for a condition; its own where none was.

    >>> recipe = paper_recipe("elsayed_2018", "cifar10")
    >>> with_rates(recipe, "elsayed_2018", "clean") == recipe
    True
    """
    chosen = learning_rates(name, recipe.dataset, condition)
    settings = {n: one if isinstance(one, Mapping) else {"lr": one} for n, one in chosen.items()}
    methods = {n: with_settings(m, settings.get(n, {})) for n, m in recipe.methods.items()}
    return dataclasses.replace(recipe, methods=methods)


def with_settings(method: Method, settings: Mapping[str, float]) -> Method:
    """The method with other settings: its own by name, and of its loss those that a method does not have.

    >>> changed = with_settings(Method(loss="center"), {"lr": 0.1, "weight": 0.03})
    >>> changed.lr, changed.loss_settings
    (0.1, {'weight': 0.03})
    """
    own = {key: value for key, value in settings.items() if hasattr(method, key)}
    rest = {key: value for key, value in settings.items() if key not in own}
    return dataclasses.replace(method, **own, loss_settings={**method.loss_settings, **rest})  # type: ignore[arg-type]


def learning_rates(name: str, dataset: str, condition: str) -> Mapping[str, float | Mapping[str, float]]:
    """Those that the paper's search chose, by method, some with other settings; none where nothing was searched.

    >>> learning_rates("elsayed_2018", "cifar10", "clean")
    {}
    """
    text = _folder(name).joinpath("recipes", "learning_rates.toml").read_text("utf-8")
    found: Mapping[str, Any] = tomllib.loads(text).get(dataset, {}).get(condition, {})
    return found


def full_recipe(name: str, dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """What a paper trained, in full size as far as it is known, where its studies are scaled down; for a GPU.

    Raises:
        ValueError: If there is none for the paper, or for the dataset.

    >>> full_recipe("wan_2018", "mnist").steps, full_recipe("sato_2019", "cifar10").model
    (20000, 'convnet32')
    """
    if _folder(name).joinpath("recipes", FULL, f"{dataset}.yaml").is_file():
        return _read_recipe(name, f"{FULL}/{dataset}.yaml", root, seeds)
    place = paper(name).full_protocol
    if not place:
        raise ValueError(
            f"a recipe in full size must be one of elsayed_2018 (mnist, cifar10), wan_2018 (mnist, cifar100) "
            f"or sato_2019 (cifar10); got {name} on {dataset}."
        )
    found: Recipe = _found(place)(dataset, root, seeds)
    return found


def paper_study(name: str, study: str, dataset: str | None = None, root: str | None = None) -> Study:
    """A study of a paper by name.

    Raises:
        ValueError: If there is none, or it is given a dataset or a root that it does not take.

    >>> paper_study("sato_2019", "weakness").rooted
    False
    """
    studies = paper(name).studies
    check_choice("only", study, studies)
    found = studies[study]
    if found.datasets:
        _check_dataset(dataset or DEFAULT_DATASET, found.datasets)
    elif dataset is not None or (root is not None and not found.rooted):
        raise ValueError(
            f"study {study!r} has its own dataset; got dataset {dataset!r} and root {root!r}. "
            f"Drop --dataset{'' if found.rooted else ' and --root'}."
        )
    return found


def _check_dataset(dataset: str, known: tuple[str, ...]) -> None:
    if dataset == DEFAULT_DATASET and dataset not in known:
        raise ValueError(
            f"`dataset` must be one of {', '.join(map(repr, known))}; got {dataset!r}, which is taken where none is "
            "given. Pass --dataset NAME --root FOLDER."
        )
    check_choice("dataset", dataset, known)


def _folder(name: str) -> Traversable:
    check_choice("paper", name, PAPERS)
    return resources.files(f"papers.{name}")


def _found(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
