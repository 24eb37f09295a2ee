"""Recipes as files: what they may say, what they take from elsewhere, and what is refused."""

import csv
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from clearance.attacks import FGSM, PGD
from clearance.experiments import catalogue
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import build_way
from clearance.experiments.method import Method
from clearance.experiments.recipe import (
    Recipe,
    from_tree,
    read_recipe,
    to_tree,
    tuned_recipe,
)
from clearance.training import TRADES, EndToEnd


@pytest.fixture
def written(tmp_path):
    """A YAML file with this text."""

    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text, "utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "dataset", ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "folder:x", "npz:y.npz"]
)
def test_every_dataset_has_a_recipe_with_every_method(dataset):
    found = tuned_recipe(dataset)
    assert found.dataset == dataset
    assert list(found.methods) == list(catalogue.METHODS)
    assert set(found.audits) <= set(catalogue.AUDITS)
    assert found.held_out == 0


def test_methods_of_the_tuned_recipes_are_what_the_catalogue_says():
    for dataset in ("digits", "mnist"):
        methods = tuned_recipe(dataset).methods
        assert methods["foca"].way == "foca"
        assert methods["noisy"].head_noise > 0
        assert methods["dropout"].dropout > 0
        assert methods["dropout"].hidden > methods["plain"].hidden
        assert methods["batchnorm"].norm == "batch"
        plain = methods["plain"]
        assert (plain.way, plain.head_noise, plain.dropout, plain.norm) == ("end_to_end", 0, 0, "none")


@pytest.mark.parametrize("name", catalogue.METHODS)
def test_the_recipe_of_the_digits_has_the_learning_rates_that_its_committed_trials_chose(name):
    """Those of the trials with the recipe's epochs and weak heads; none is at an edge of those tried."""
    recipe = tuned_recipe("digits")
    used = recipe.methods[name]
    path = Path(__file__).parents[2] / "benchmarks" / "default_recipe.csv"
    with path.open(newline="") as file:
        trials = [
            row
            for row in csv.DictReader(file)
            if row["method"] == name
            and row["epochs"] == str(recipe.epochs)
            and all(row[key] in ("", str(getattr(used, key))) for key in ("heads", "reuse", "head_steps"))
        ]
    assert len(trials) >= 3
    errors = {float(row["lr"]): float(row["one_image_error"]) for row in trials}
    assert used.lr == min(lr for lr, error in errors.items() if error <= min(errors.values()) + 0.001)
    assert min(errors) < used.lr < max(errors)


def test_a_group_of_audits_stands_for_them():
    assert Recipe(audits=("few-labels", "accuracy")).audits == ("co_adaptation", "linear_probe", "accuracy")
    assert Recipe(audits=("all",)).audits == tuple(catalogue.AUDITS)


def test_a_file_changes_only_what_it_says(written):
    found = read_recipe(written("dataset: digits\nepochs: 3\n"))
    assert found == dataclasses.replace(tuned_recipe("digits"), epochs=3)


def test_a_method_may_stand_on_another_or_alone(written):
    found = read_recipe(
        written(
            "methods:\n  plain: {}\n  mine: {base: foca, lr: 0.01, hidden: [7]}\n"
            "  alone: {base: none}\n  dropout: {dropout: 0.25}\n  new: {lr: 1}\n"
        )
    )
    tuned = tuned_recipe("digits").methods
    assert list(found.methods) == ["plain", "mine", "alone", "dropout", "new"]
    assert found.methods["plain"] == tuned["plain"]
    assert found.methods["mine"] == dataclasses.replace(tuned["foca"], lr=0.01, hidden=(7,))
    assert found.methods["alone"] == Method()
    assert found.methods["dropout"] == dataclasses.replace(tuned["dropout"], dropout=0.25)
    assert found.methods["new"] == Method(lr=1.0)


def test_numbers_that_yaml_reads_as_words_are_numbers(written):
    found = read_recipe(written("label_noise: 1e-1\nmethods:\n  mine: {weight_decay: 5e-4, lr: 1}\n"))
    assert found.label_noise == 0.1
    assert found.methods["mine"].weight_decay == 5e-4
    assert isinstance(found.methods["mine"].lr, float)


def test_an_empty_list_of_methods_takes_the_tuned_ones(written):
    assert read_recipe(written("methods:\nseeds: 2\n")).methods == tuned_recipe("digits").methods


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3", "no setting 'epoch'.*Did you mean 'epochs'"),
        ("methods: {mine: {learning_rate: 1, lr: 1}}", "no setting 'learning_rate'"),
        ("lr: 0.1", "'lr' is not a setting of the recipe but of a method; write methods: {plain: {lr: ...}}"),
        ("wd: 0.1", "'wd' is not a setting of the recipe .*{plain: {weight_decay: ...}}"),
        (
            "methods: {plain: {epochs: 3}}",
            "method 'plain': 'epochs' .* of the whole recipe; write it outside",
        ),
        ("methods: {mine: {learning_rate: 0.5}}", "method 'mine'.*Did you mean 'lr'"),
        ("methods: {mine: {droput: 0.5}}", "method 'mine'.*Did you mean 'dropout'"),
        ("methods: {mine: {base: plane}}", "base of method 'mine'.*Did you mean 'plain'"),
        ("methods: {mine: 3}", "method 'mine' must be a mapping"),
        ("methods: [plain, foca]", r"`methods` must map names to settings.*\['plain', 'foca'\]"),
        ("methods: plain", "`methods` must map names"),
        ("methods: {mine: {lr: fast}}", "`lr` must be a number; got 'fast'"),
        ("methods: {mine: {lr: true}}", "`lr` must be a number; got True"),
        ("methods: {mine: {lr: [1]}}", "`lr` must be a number"),
        ("methods: {mine: {lr: -1}}", "`lr` must be a finite number above 0"),
        ("methods: {mine: {lr: .nan}}", "`lr` must be a finite number above 0"),
        ("methods: {mine: {hidden: 128}}", "`hidden` must be a list"),
        ("methods: {mine: {way: focus}}", "`way` must be one of"),
        ("methods: {mine: {norm: layer}}", "`norm` must be one of"),
        ("methods: {mine: {dropout: 1}}", r"`dropout` must lie in \[0, 1\)"),
        ("methods: {mine: {heads: 1.5}}", "`heads` must be a whole number"),
        ("methods: {mine: {hidden: [0]}}", "`hidden` must be a whole number of at least 1; got 0"),
        ("augment_pad: -1", "`augment_pad` must be a whole number of at least 0"),
        ("epochs: many", "`epochs` must be a whole number"),
        ("epochs: 2.5", "`epochs` must be a whole number"),
        ("seeds: 0", "`seeds` must be a whole number of at least 1"),
        ("seeds: true", "`seeds` must be a whole number"),
        ("left_out: [cat]", "`left_out` must be a whole number of at least 0; got 'cat'"),
        ("audits: accuracy", "`audits` must be a list"),
        ("size: big", "`size` must be a whole number"),
        ("methods: {mine: {clip_norm: tight}}", "`clip_norm` must be a number"),
        ("methods: {mine: {clip_norm: 0}}", "`clip_norm` must be a finite number above 0"),
        ("audit_settings: [1]", "`audit_settings` must be a mapping"),
        ("augment_flip: yesplease", "`augment_flip` must be true or false"),
        ("dataset: 5", "`dataset` must be a word"),
        ("model: [small-cnn]", "`model` must be a word"),
        ("held_out: 1", r"`held_out` must lie in \[0, 1\)"),
        ("train_fraction: 0", "`train_fraction` must lie in"),
        ("- a\n- b", "must hold a mapping of settings; got list"),
        ("", "must hold a mapping of settings; got NoneType"),
        ("a: [", "must be YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_file_and_key(written, text, message):
    path = written(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_called_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_recipe(tmp_path / "nowhere.yaml")


def test_an_optional_number_may_be_none_or_whole(written):
    found = read_recipe(written("size: null\nmethods: {mine: {clip_norm: null}, other: {max_norm: 3}}"))
    assert found.size is None
    assert found.methods["mine"].clip_norm is None
    assert found.methods["other"].max_norm == 3.0


def test_another_dataset_takes_the_place_of_the_files(written):
    found = read_recipe(written("dataset: digits\nseeds: 7\n"), dataset="mnist")
    assert found == dataclasses.replace(tuned_recipe("mnist"), seeds=7)


def test_a_recipe_survives_the_way_to_a_worker_and_back():
    start = dataclasses.replace(
        tuned_recipe("mnist"),
        root="here",
        audits=("accuracy",),
        audit_settings={"co_adaptation": {"lr": 0.1}},
    )
    again = from_tree(to_tree(start), "the plan")
    assert to_tree(again) == to_tree(start)
    assert again.methods == start.methods
    assert again.audits == ("accuracy",)


@pytest.mark.parametrize("name", ["foac", "batchnrom", "Plain", "my_own"])
def test_a_name_alone_that_is_no_method_is_refused(written, name):
    """It would train as the defaults do, under a name that says otherwise."""
    with pytest.raises(ValueError, match=rf"`.*method` must be one of .*; got '{name}'"):
        read_recipe(written(f"methods:\n  plain: {{}}\n  {name}: {{}}\n"))


def test_nor_may_settings_stand_under_a_name_that_is_nearly_a_method_s(written):
    with pytest.raises(ValueError, match=r"method 'foac' is nearly 'foca'\. Write that"):
        read_recipe(written("methods:\n  foac: {lr: 0.1}\n"))
    found = read_recipe(written("methods:\n  foac: {base: none, lr: 0.1}\n  mine: {lr: 0.2}\n"))
    assert {name: method.lr for name, method in found.methods.items()} == {"foac": 0.1, "mine": 0.2}


def test_a_method_that_says_what_it_is_may_have_any_name(written):
    found = read_recipe(written("methods:\n  foac: {way: end_to_end, lr: 0.1}\n"))
    assert found.methods["foac"].lr == 0.1


class TestAdversarialSettings:
    @staticmethod
    def way(**settings: Any) -> EndToEnd:
        built = build_way(Method(**settings))
        assert isinstance(built, EndToEnd)
        return built

    @pytest.mark.parametrize(
        ("settings", "attack"),
        [
            ({}, None),
            ({"adversarial": 0.1}, FGSM(0.1)),
            ({"adversarial": 0.1, "adversarial_steps": 7}, PGD(0.1, loss="cross_entropy", steps=7)),
            (
                {"adversarial": 0.1, "adversarial_steps": 7, "trades": 3},
                TRADES(0.1, steps=7, beta=3.0),
            ),
        ],
    )
    def test_they_name_the_attack(self, settings, attack):
        assert self.way(**settings).adversarial == attack

    def test_share_and_rise_are_handed_on(self):
        way = self.way(adversarial=0.1, adversarial_share=0.25, adversarial_rise=30)
        assert (way.adversarial_share, way.adversarial_rise) == (0.25, 30)

    @pytest.mark.parametrize(
        "alone",
        [{"adversarial_steps": 2}, {"adversarial_rise": 2}, {"trades": 2}, {"adversarial_share": 1.0}],
    )
    def test_without_adversarial_images_they_are_refused(self, alone: dict[str, Any]):
        (name,) = alone
        with pytest.raises(ValueError, match=rf"`{name}` must be [\d.]+ without adversarial images; got"):
            Method(**alone)

    @pytest.mark.parametrize(
        ("way", "settings"),
        [
            ("foca", {"adversarial": 0.1}),
            ("foca", {"head_noise": 0.5}),
            ("end_to_end", {"per_class": 3}),
            ("end_to_end", {"weak_heads": "ridge"}),
        ],
    )
    def test_a_way_refuses_what_it_would_not_do(self, way: Any, settings: dict[str, Any]):
        (name,) = settings
        with pytest.raises(ValueError, match=rf"`{name}` must be left out with `way: {way}`"):
            Method(way=way, **settings)

    @pytest.mark.parametrize(
        ("heads", "settings"),
        [("gradient", {"penalty": 0.1}), ("ridge", {"head_lr": 0.2}), ("mixture", {"head_steps": 3})],
    )
    def test_weak_heads_refuse_what_they_would_not_use(self, heads: Any, settings: dict[str, Any]):
        (name,) = settings
        with pytest.raises(ValueError, match=rf"`{name}` must be left out with `weak_heads: {heads}`"):
            Method(way="foca", weak_heads=heads, hidden=(), **settings)

    @pytest.mark.parametrize("heads", ["ridge", "mixture"])
    def test_weak_heads_in_closed_form_need_one_linear_layer(self, heads: Any):
        with pytest.raises(ValueError, match=rf"`hidden` must be \[\] with `weak_heads: {heads}`"):
            Method(way="foca", weak_heads=heads)
        Method(way="foca", weak_heads=heads, hidden=())


BOMBS = {
    "aliases": "a: &a [1]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(20)
    ),
    "merged aliases": "a: &a {x: 1}\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} {{<<: [{', '.join([f'*{chr(97 + i)}'] * 10)}]}}\n" for i in range(20)
    ),
    "itself": "a: &a [*a]",
    "itself merged": "a: &a {<<: *a}",
    "deep lists": "a: " + "[" * 5000 + "]" * 5000,
    "deep mappings": "".join(f"{' ' * i}a:\n" for i in range(900)),
    "deep and open": "{" * 100_000,
    "a long list": f"audits: [{'accuracy, ' * 20_000}]",
    "a long number": f"epochs: {'9' * 5000}",
    "a date": "methods: {plain: {loss_settings: {margin: 2001-01-01}}}",
    "a set": "audits: !!set {accuracy}",
    "bytes": "dataset: !!binary AAAA",
    "an object": "dataset: !!python/object:os.system {}",
    "a key twice": "epochs: 3\nepochs: 4",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_take_all_memory_or_is_no_setting_is_refused_at_once(written, name):
    path = written(BOMBS[name])
    with pytest.raises(ValueError, match=re.escape(str(path))) as refused:
        read_recipe(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "key", ["1", "null", "true", "1.5", ".nan", "'a b'", "~", "[a, b]", "{}", "''", "=", "0x10"]
)
@pytest.mark.parametrize("place", ["{%s: 1}", "{methods: {plain: {%s: 1}}}", "{methods: {%s: 1}}"])
def test_odd_keys_are_refused_by_name(written, key, place):
    with pytest.raises(ValueError, match=r"mine\.yaml"):
        read_recipe(written(place % key))


@pytest.mark.parametrize("given", ["null", "3", "[a]", "text", "true"])
def test_the_settings_of_an_audit_are_a_mapping(written, given):
    with pytest.raises(
        ValueError, match=r"mine\.yaml: `audit_settings` must map each audit to its settings.*'robust"
    ):
        read_recipe(written(f"audit_settings: {{robustness: {given}}}"))


@pytest.mark.parametrize("given", ["null", "3", "true", "{a: 1}", "text", "[null]", "[{}]"])
def test_a_value_of_another_type_is_one_error_that_names_audit_and_setting(written, given):
    recipe = read_recipe(written(f"audit_settings: {{co_adaptation: {{per_class: {given}}}}}"))
    with pytest.raises(ValueError, match=r"co_adaptation|per_class"):
        AuditPlan.of_recipe(recipe)


def test_aliases_that_stay_small_are_kept(written):
    text = "methods:\n  a: &a {base: plain, lr: 0.1}\n  b: {<<: *a, momentum: 0.5}\n  c: *a\n"
    methods = read_recipe(written(text)).methods
    assert (methods["b"].lr, methods["b"].momentum, methods["c"].lr) == (0.1, 0.5, 0.1)


@pytest.mark.parametrize("text", ["lr: 1{}", "momentum: 1{}", "per_class: 1{}"])
def test_a_number_of_400_digits_is_one_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(f"methods: {{plain: {{base: plain, {text.format('0' * 400)}}}}}\n")
    with pytest.raises(ValueError, match=r"mine\.yaml.*plain"):
        read_recipe(path)


def test_settings_of_audits_that_a_file_leaves_out_are_the_tuned_ones(written):
    tuned = tuned_recipe("digits").audit_settings
    found = read_recipe(written("audit_settings: {robustness: {images: 50}, co_adaptation: {lr: 0.1}}"))
    assert found.audit_settings["robustness"] == {"images": 50}
    assert found.audit_settings["co_adaptation"] == {**tuned["co_adaptation"], "lr": 0.1}
    assert found.audit_settings["deeper_cut"] == tuned["deeper_cut"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"hidden": (), "dropout": 0.5},
            r"`dropout` must be 0 without a hidden layer.*got 0\.5 and `hidden: \[\]`",
        ),
        ({"hidden": (100,), "mixture": "identity", "dropout": 0.5}, "`dropout` must be 0"),
        ({"mixture": "identity", "variances_lr": 0.1}, "`variances_lr` must be 1 with `mixture: identity`"),
    ],
)
def test_what_would_change_nothing_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Method(**settings)
