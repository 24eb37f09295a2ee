"""Every setting that can move a number is another run; what concerns only others is not."""

import dataclasses
import re
from typing import Any

import pytest

from clearance.experiments.method import FOCASettings, Method
from clearance.experiments.recipe import (
    Recipe,
    identifier,
)
from clearance.experiments.run import RunPlan

METHOD_CHANGES: dict[str, Any] = {
    "way": "foca",
    "loss": "squared-error",
    "loss_settings": {"margin": 2.0},
    "lr": 0.051,
    "momentum": 0.8,
    "weight_decay": 0.0,
    "hidden": (128, 127),
    "dropout": 0.1,
    "norm": "batch",
    "mixture": "identity",
    "priors": "learned",
    "means_lr": 2.0,
    "variances_lr": 0.1,
    "means_decay": 0.0,
    "features": 2,
    "head_noise": 0.1,
    "adversarial": 0.1,
    "adversarial_share": 1.0,
    "adversarial_steps": 7,
    "adversarial_rise": 100,
    "trades": 6.0,
    "clip_norm": 1.0,
    "max_norm": 1.0,
    "weak_heads": "ridge",
    "per_class": 9,
    "heads": 2,
    "reuse": 2,
    "mode": "cycle",
    "pool": 100,
    "heads_batch_norm": "running",
    "recalibrate": True,
    "penalty": 0.1,
    "head_steps": 31,
    "head_lr": 0.031,
    "head_decay": 0.0,
    "final_head_steps": 1999,
    "final_head_lr": 0.031,
}

# Settings that only make sense beside another one.
BESIDE: dict[str, Any] = {
    **{name: {"mixture": "diagonal"} for name in ("priors", "means_lr", "variances_lr", "means_decay")},
    **{
        name: {"adversarial": 0.1}
        for name in ("adversarial_share", "adversarial_steps", "adversarial_rise", "trades")
    },
    **{name: {"way": "foca", "hidden": ()} for name in vars(FOCASettings())},
    "penalty": {"way": "foca", "hidden": (), "weak_heads": "ridge"},
}

RECIPE_CHANGES: dict[str, Any] = {
    "dataset": "npz:other.npz",
    "size": 32,
    "model": "other",
    "epochs": 61,
    "steps": 100,
    "batch_size": 65,
    "schedule": "constant",
    "left_out": (1, 2),
    "label_noise": 0.1,
    "samples": 68,
    "balanced": False,
    "validation": 0.1,
    "train_fraction": 0.5,
    "held_out": 0.25,
    "augment_flip": True,
    "augment_pad": 1,
    "augment_cutout": 2,
    "autocast": True,
    "compile_extractor": True,
    "channels_last": True,
}

SHARED_CHANGES: dict[str, Any] = {
    "seeds": 9,
    "audits": ("accuracy",),
    "audit_settings": {"co_adaptation": {"lr": 0.1}},
    "root": "elsewhere",  # where files lie moves no number; what is in them is in the fingerprint
    "methods": {"mine": Method(), "other": Method(lr=1.0)},
}


def folder(recipe=None, seed=0):
    return RunPlan(recipe or Recipe(methods={"mine": Method()}), "mine", seed).folder


def test_the_lists_of_changes_name_every_field():
    assert set(METHOD_CHANGES) == {f.name for f in dataclasses.fields(Method)}
    assert {*RECIPE_CHANGES, *SHARED_CHANGES} == {f.name for f in dataclasses.fields(Recipe)}


@pytest.mark.parametrize("name", METHOD_CHANGES)
def test_any_change_of_a_method_is_another_run(name):
    start = Method(**BESIDE.get(name, {}))
    changed = dataclasses.replace(start, **{name: METHOD_CHANGES[name]})
    assert folder(Recipe(methods={"mine": changed})) != folder(Recipe(methods={"mine": start}))


@pytest.mark.parametrize("name", RECIPE_CHANGES)
def test_any_change_that_can_move_a_number_is_another_run(name):
    changed = Recipe(methods={"mine": Method()}, **{name: RECIPE_CHANGES[name]})
    assert folder(changed) != folder()


@pytest.mark.parametrize("name", SHARED_CHANGES)
def test_what_concerns_only_others_is_the_same_run(name):
    changed = dataclasses.replace(Recipe(methods={"mine": Method()}), **{name: SHARED_CHANGES[name]})
    assert folder(changed) == folder()


def test_seeds_have_folders_of_their_own_with_names_for_any_file_system():
    assert folder(seed=1) != folder(seed=0)
    odd = Recipe(methods={"a/b: c?": Method()})
    name = RunPlan(odd, "a/b: c?", 0).folder
    assert re.fullmatch(r"[\w.-]+", name)


def test_identifiers_do_not_depend_on_the_order_of_keys():
    assert identifier({"a": 1, "b": 2}) == identifier({"b": 2, "a": 1})
    assert identifier({"a": 1}) != identifier({"a": 1.5})
    assert re.fullmatch("[0-9a-f]{8}", identifier({}))
