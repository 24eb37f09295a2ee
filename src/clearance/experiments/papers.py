"""Papers by name: their claims, their recipes and their studies of their own, read without torch."""

import dataclasses
import importlib
from importlib import resources
from importlib.resources.abc import Traversable

import yaml

from clearance._checks import check_choice
from clearance.experiments.catalogue import resolve
from clearance.experiments.recipe import Recipe, from_tree
from clearance.experiments.studies import PAPERS, PROTOCOLS, STUDIES, Study
from clearance.records.claims import PaperClaims, parse_claims

DEFAULT_DATASET = "digits"  # embedded, so that a reproduction needs no files


def paper_claims(paper: str) -> PaperClaims:
    """Every claim of a paper.

    Args:
        paper: Its name in the catalogue.

    Raises:
        ValueError: If there is no such paper.

    >>> [claim.id for claim in paper_claims("sato-2019").claims][:3]
    ['T1', 'T2', 'A1']
    """
    return parse_claims(_folder(paper).joinpath("claims.toml").read_text("utf-8"), f"{paper}/claims.toml")


def paper_datasets(paper: str) -> tuple[str, ...]:
    """Datasets for which a paper has a recipe.

    >>> paper_datasets("sato-2019")
    ('cifar10', 'cifar100', 'digits', 'mnist')
    """
    files = (file.name for file in _folder(paper).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def whole_recipe(paper: str, dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe that tries a paper's claims all together, as :func:`paper_recipe`, of which studies may vary it.

    Raises:
        ValueError: As there, and if the claims are judged by studies alone, which choose settings of their own.

    >>> sorted(whole_recipe("sato-2019", "digits").methods)[:2]
    ['batchnorm', 'dropout']
    """
    claims = paper_claims(paper).claims
    if not any(claim.readings and not claim.study and not claim.recalled for claim in claims):
        raise ValueError(
            f"{paper} is tried by its studies; name one with --only (`only`): {', '.join(STUDIES[paper])}."
        )
    return paper_recipe(paper, dataset, root, seeds)


def paper_recipe(paper: str, dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe with which a paper's claims are tried on a dataset, or from which its studies start.

    Args:
        paper: Its name in the catalogue.
        dataset: One of :func:`paper_datasets`.
        root: The folder that holds the dataset's files.
        seeds: How many seeds; those of the recipe by default. A verdict needs five.

    Raises:
        ValueError: If there is no such paper, or it has no recipe for the dataset.

    >>> paper_recipe("sato-2019", "digits").seeds
    5
    """
    folder = _folder(paper)
    _check_dataset(dataset, paper_datasets(paper))
    text = folder.joinpath(f"{dataset}.yaml").read_text("utf-8")
    recipe = from_tree(yaml.safe_load(text), f"{paper}/{dataset}.yaml")
    return dataclasses.replace(recipe, root=root, seeds=recipe.seeds if seeds is None else seeds)


def full_recipe(paper: str, dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """What a paper trained, in full size as far as it is known, where its studies are scaled down; for a GPU.

    Raises:
        ValueError: If there is none for the paper, or for the dataset.

    >>> full_recipe("wan-2018", "mnist").steps
    20000
    """
    check_choice("paper", paper, PAPERS)
    if paper not in PROTOCOLS:
        known = " and ".join(PROTOCOLS)
        raise ValueError(
            f"recipes in full size are kept for {known}; got {paper!r}, whose recipes are all there is."
        )
    make = resolve("paper", paper, PROTOCOLS)
    found: Recipe = make(dataset, root, seeds)
    return found


def paper_study(paper: str, name: str, dataset: str | None = None, root: str | None = None) -> Study:
    """A study of a paper by name.

    Raises:
        ValueError: If there is none, or it is given a dataset or a root that it does not take.

    >>> paper_study("sato-2019", "weakness").rooted
    False
    """
    check_choice("paper", paper, PAPERS)
    studies = STUDIES.get(paper, {})
    check_choice("only", name, studies)
    study = studies[name]
    if study.datasets:
        _check_dataset(dataset or DEFAULT_DATASET, study.datasets)
    elif dataset is not None or (root is not None and not study.rooted):
        raise ValueError(
            f"study {name!r} has a dataset of its own; got dataset {dataset!r} and root {root!r}. "
            f"Drop --dataset{'' if study.rooted else ' and --root'}."
        )
    return study


def _check_dataset(dataset: str, known: tuple[str, ...]) -> None:
    if dataset == DEFAULT_DATASET and dataset not in known:
        raise ValueError(
            f"`dataset` must be one of {', '.join(map(repr, known))}; got {dataset!r}, which is taken where none is "
            "given. Pass --dataset NAME --root FOLDER."
        )
    check_choice("dataset", dataset, known)


def _folder(paper: str) -> Traversable:
    check_choice("paper", paper, PAPERS)
    return resources.files(importlib.import_module(PAPERS[paper].place))
