"""Another dataset that a recipe names for an audit: read where the recipe's files are, and part of what is kept."""

import json

import pytest

from clearance.audits import Likelihood
from clearance.data import ImageSet
from clearance.experiments.auditing import chosen_audits, ready_audits
from clearance.experiments.compare import full_settings
from clearance.experiments.method import Method
from clearance.experiments.plan import RunPlan
from clearance.experiments.recipe import Recipe


def recipe(**settings):
    return Recipe(
        audits=("likelihood",), audit_settings={"likelihood": settings}, methods={"plain": Method()}
    )


def test_a_name_becomes_the_test_images_of_that_dataset():
    (audit,) = ready_audits(RunPlan(recipe(other="digits", images=7), "plain", 0), None)
    assert isinstance(audit, Likelihood)
    assert isinstance(audit.other, ImageSet)
    assert (audit.other.name, len(audit.other), audit.images) == ("digits", 497, 7)
    (bare,) = ready_audits(RunPlan(recipe(), "plain", 0), None)
    assert isinstance(bare, Likelihood)
    assert bare.other is None


def test_the_name_is_part_of_the_settings_that_are_kept():
    assert (
        json.loads(json.dumps(full_settings(recipe(other="digits"))))["audit_settings"]["likelihood"]["other"]
        == "digits"
    )
    (chosen,) = chosen_audits(("likelihood",), {"likelihood": {"other": "digits"}})
    assert chosen == Likelihood(other="digits")


def test_an_unknown_dataset_or_one_without_its_files_is_refused():
    with pytest.raises(ValueError, match=r"`dataset` must be one of .*got 'digit'.*Did you mean 'digits'"):
        ready_audits(RunPlan(recipe(other="digit"), "plain", 0), None)
    with pytest.raises(ValueError, match="dataset 'mnist' needs `root`"):
        ready_audits(RunPlan(recipe(other="mnist"), "plain", 0), None)
