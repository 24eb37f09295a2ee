"""What a run says of decay is what its optimiser did."""

from clearance.data import gaussian_images
from clearance.experiments.build import RunData
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan, run_method

METHODS = {
    "plain": Method(hidden=(8,), weight_decay=0.01),
    "none": Method(hidden=(8,), weight_decay=0.0),
    "foca": Method(way="foca", hidden=(8,), weight_decay=0.01, per_class=2, final_head_steps=5),
    "mixture": Method(
        loss="gaussian-mixture", mixture="diagonal", hidden=(), weight_decay=0.01, means_decay=0.5
    ),
}


def decays(method, audits=("weight_scale",)):
    """(weight_decay, how) of every parameter of a short run, by name."""
    recipe = Recipe(
        dataset="gaussian", epochs=1, batch_size=8, seeds=1, audits=audits, methods=METHODS, model="tiny-cnn"
    )
    data = RunData(gaussian_images(per_class=8, seed=0), gaussian_images(per_class=8, seed=1))
    found = run_method(RunPlan(recipe, method, 0), data)
    shown = [one.exhibit.columns for one in found.exhibits if one.exhibit.name == "decay"]
    return [
        dict(zip(one["name"], zip(one["weight_decay"], one["how"], strict=True), strict=True))
        for one in shown
    ]


def test_every_trained_parameter_decays_coupled_biases_too():
    (found,) = decays("plain")
    assert set(found.values()) == {(0.01, "coupled")}
    assert any(name.endswith("bias") for name in found)


def test_without_decay_none_does():
    (found,) = decays("none")
    assert set(found.values()) == {(0.0, "none")}


def test_a_last_layer_that_is_trained_on_its_own_is_not_the_optimiser_s():
    (found,) = decays("foca")
    assert {how for name, (_, how) in found.items() if name.startswith("extractor")} == {"coupled"}
    assert {how for name, (_, how) in found.items() if name.startswith("head")} == {"none"}


def test_variances_of_a_mixture_never_decay_and_means_as_they_are_told_to():
    (found,) = decays("mixture")
    head = {name: decay for name, decay in found.items() if name.startswith("head")}
    means = {decay for name, decay in head.items() if "mean" in name}
    assert means == {(0.005, "coupled")}
    assert {how for name, (_, how) in head.items() if "mean" not in name} == {"none"}


def test_nothing_is_said_where_nobody_asks_for_the_size_of_weights():
    assert decays("plain", audits=("accuracy",)) == []
