"""Recipes that no one would write: each gives a recipe that can be printed and named, or one line."""

import dataclasses

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clearance.cli._options import chosen_recipe
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.catalogue import AUDITS, LOSSES, METHODS, MODELS
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe, identifier, read_recipe, to_tree
from fuzz.damage import damaged_bytes, damaged_tree, plain_values
from fuzz.endings import MARK, cases, one_line

pytestmark = MARK
WHOLE = {
    "dataset": "digits",
    "epochs": 2,
    "steps": 10,
    "schedule": "tenths",
    "audits": ["accuracy", "co_adaptation", "robustness"],
    "audit_settings": {
        "co_adaptation": {"per_class": [1], "hidden": [4]},
        "robustness": {"epsilons": {"inf": [0.1]}},
    },
    "left_out": [1],
    "methods": {
        "plain": {"lr": 0.1, "hidden": [8, 8]},
        "mine": {"base": "foca", "per_class": 1},
        "other": {"base": "none", "loss": "hinge", "loss_settings": {"margin": 2.0}},
        "third": {
            "base": "none",
            "loss": "sum",
            "loss_settings": {"parts": {"a": {"loss": "center", "weight": 0.1}}},
        },
    },
}
METHODS_OF_WHOLE = ("plain", "mine", "other", "third")
NAMES = st.sampled_from(
    [
        *(field.name for kind in (Recipe, Method) for field in dataclasses.fields(kind)),
        *AUDITS,
        *LOSSES,
        *METHODS,
        *MODELS,
    ]
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes") / "mine.yaml"


def used(file):
    """What `compare --dry-run` does with a recipe, and what a comparison does before it trains."""
    with one_line("mine.yaml"):
        read_recipe(file)
    with one_line("mine.yaml", *WHOLE, *METHODS_OF_WHOLE, "`", "setting"):
        recipe = chosen_recipe(file, None, ())
        AuditPlan.of_recipe(recipe)
        tree = to_tree(recipe)
        assert yaml.safe_load(yaml.safe_dump(tree, sort_keys=False)) is not None
        assert len(identifier(tree)) == 8


@cases(250)
@given(tree=damaged_tree(WHOLE))
def test_damaged_trees(file, tree):
    file.write_text(yaml.safe_dump(tree, allow_unicode=False), "utf-8")
    used(file)


@cases(150)
@given(tree=st.dictionaries(NAMES, st.one_of(plain_values(), NAMES, st.lists(NAMES, max_size=3)), max_size=5))
def test_any_values_of_known_names(file, tree):
    file.write_text(yaml.safe_dump(tree, allow_unicode=False), "utf-8")
    used(file)


@cases(200)
@given(content=damaged_bytes(yaml.safe_dump(WHOLE).encode()))
def test_damaged_files(file, content):
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)
    used(file)
