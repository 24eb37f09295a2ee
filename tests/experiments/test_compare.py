"""Comparisons and audits from Python, with methods, losses, ways of training and models of the caller's own."""

import dataclasses
import json
import math

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import Audit, Calibration, Findings
from clearance.data import gaussian_images
from clearance.experiments.audit_plan import MODEL_AUDITS
from clearance.experiments.build import build_data
from clearance.experiments.compare import Comparison
from clearance.experiments.recipe import tuned_recipe
from clearance.heads import MLP


class Learnt(cl.losses.Loss):
    """Cross-entropy at a temperature that is learnt, with a count of steps; notes where each step began."""

    steps: torch.Tensor
    seen: list[tuple[float, int]] = []  # noqa: RUF012 - on the class, so that copies write to it too

    def __init__(self, start=0.0):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(start))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, outputs, labels):
        self.seen.append((float(self.log_temperature.detach()), int(self.steps)))
        logits = outputs.logits * self.log_temperature.exp()
        return cl.LossTerms({"learnt": nn.functional.cross_entropy(logits, labels)})

    def after_step(self, outputs, labels):
        self.steps += 1


def test_images_that_the_network_cannot_take_are_refused_before_training():
    images = cl.data.ImageSet(torch.rand(12, 1, 8, 6), torch.arange(12) % 3, tuple("abc"))
    test = dataclasses.replace(images, images=torch.rand(12, 1, 8, 6))
    with pytest.raises(ValueError, match=r"'small-cnn' takes square images; these are 6x8. Give the side"):
        cl.compare(["plain"], images, test, audits=["accuracy"])


TURNS = cl.Method(way="foca", mode="cycle", heads=8, reuse=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"methods": {"turns": TURNS}}, "method 'turns': `heads` must not exceed"),
        ({"methods": ["plain"], "model": "run:nowhere"}, "method 'plain': nowhere must be the directory"),
    ],
)
def test_what_cannot_be_built_is_refused_before_training(data, wrong, message):
    with pytest.raises(ValueError, match=message):
        cl.compare(train=data.train, test=data.test, on_run=lambda *_: pytest.fail("trained"), **wrong)


@pytest.fixture(autouse=True)
def forgotten():
    Learnt.seen.clear()


def compared(methods, data, **settings):
    given = {"seeds": 1, "epochs": 1, "batch_size": 12, "audits": ["accuracy"], **settings}
    return cl.compare(methods, data.train, data.test, **given)


def errors(card):
    return {
        (r.method, r.seed): r.measurement.value
        for r in card.records
        if r.measurement.audit == "accuracy" and r.measurement.context["split"] == "test"
    }


def test_every_kind_of_method_is_compared(data):
    methods = {
        "a name": "plain",
        "settings": cl.Method(lr=0.1, hidden=(8,)),
        "a loss": Learnt(),
        "a way of training": cl.training.FOCA(per_class=1),
        "noise": cl.training.EndToEnd(Learnt(), head_noise=0.1),
    }
    started = []
    card = compared(methods, data, seeds=2, on_run=lambda method, seed: started.append((method, seed)))
    assert started == [(name, seed) for seed in (0, 1) for name in methods]
    assert set(errors(card)) == set(started)
    assert card.report.methods == tuple(methods)
    recipe = json.loads(card.to_json())["recipe"]
    assert (recipe["epochs"], recipe["seeds"], recipe["batch_size"]) == (1, 2, 12)
    assert recipe["methods"]["settings"]["lr"] == 0.1
    assert "<html" in card.to_html()


def test_a_list_of_names_is_enough_and_the_rest_is_tuned(data):
    card = cl.compare(["plain", "foca"], data.train, data.test, seeds=1, audits=["accuracy"])
    tuned, used = tuned_recipe("gaussian"), json.loads(card.to_json())["recipe"]
    assert (used["epochs"], used["batch_size"]) == (tuned.epochs, tuned.batch_size)
    assert {name: used["methods"][name]["lr"] for name in ("plain", "foca")} == {
        name: tuned.methods[name].lr for name in ("plain", "foca")
    }


def test_every_seed_starts_with_the_loss_as_it_was_given(data):
    mine = Learnt(start=0.25)
    compared({"mine": mine, "again": mine}, data, seeds=2)  # two steps a run
    assert len(Learnt.seen) == 8
    assert Learnt.seen[::2] == [(0.25, 0)] * 4
    assert all(steps == 1 and temperature != 0.25 for temperature, steps in Learnt.seen[1::2])
    assert float(mine.log_temperature.detach()) == 0.25
    assert int(mine.steps) == 0


class Unlucky(cl.losses.CrossEntropyLoss):
    """Cross-entropy that breaks in the first step of one seed, by the count of steps of all seeds."""

    steps = 0

    def __init__(self, breaks_at):
        super().__init__()
        self.breaks_at = breaks_at

    def forward(self, outputs, labels):
        Unlucky.steps += 1
        if Unlucky.steps == self.breaks_at:
            raise RuntimeError("out of memory")
        return super().forward(outputs, labels)


def test_a_run_that_breaks_after_another_of_its_method_costs_no_other_run(data, monkeypatch, caplog):
    monkeypatch.setattr(Unlucky, "steps", 0)
    card = compared({"mine": Unlucky(3), "plain": "plain"}, data, seeds=3)  # two steps a run
    (broken,) = [run for run in card.report.runs if run.status.startswith("failed")]
    assert (broken.method, broken.seed) == ("mine", 1)
    assert broken.status == "failed: RuntimeError: out of memory"
    assert {r.seed for r in card.records if r.method == "mine"} == {0, 2}
    assert "mine, seed 1, failed" in caplog.text
    assert "in forward" in caplog.text


class Warming(cl.losses.Loss):
    """Cross-entropy under another name from the second pass on."""

    def forward(self, outputs, labels):
        term = nn.functional.cross_entropy(outputs.logits, labels)
        Unlucky.steps += 1
        return cl.LossTerms({"early" if Unlucky.steps < 3 else "late": term})  # two steps a pass


def test_the_curve_of_a_loss_whose_terms_come_and_go_has_all_of_them(data, monkeypatch):
    monkeypatch.setattr(Unlucky, "steps", 0)
    card = compared({"mine": Warming()}, data, seeds=1, epochs=2)
    (curve,) = [one for one in card.exhibits if (one.audit, one.name) == ("training", "curve")]
    assert len(curve.columns["loss"]) == 2
    assert all(math.isfinite(loss) and loss > 0 for loss in curve.columns["loss"])


def test_a_method_that_never_worked_raises(data, monkeypatch):
    monkeypatch.setattr(Unlucky, "steps", 0)
    with pytest.raises(RuntimeError, match="out of memory"):
        compared({"plain": "plain", "mine": Unlucky(1)}, data, seeds=2)


def test_models_of_the_caller_start_alike_for_every_method_of_a_seed(data):
    made = []

    def fresh():
        model = cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), MLP((6, 3)))
        made.append(next(model.extractor.parameters()).detach().clone())
        return model

    torch.manual_seed(0)
    state = torch.get_rng_state()
    card = compared({"a": "plain", "b": Learnt(), "c": "foca"}, data, seeds=2, model=fresh)
    assert torch.equal(torch.get_rng_state(), state)
    a0, b0, c0, a1, b1, c1 = made
    assert torch.equal(a0, b0)
    assert torch.equal(a0, c0)
    assert torch.equal(a1, b1)
    assert torch.equal(a1, c1)
    assert not torch.equal(a0, a1)
    with pytest.raises(ValueError, match=r"method 'lgm', which changes the network \(`mixture`\)"):
        compared(["plain", "lgm"], data, seeds=1, model=fresh)
    torch.manual_seed(123)  # nothing depends on where the caller's random numbers stand
    assert errors(compared({"a": "plain", "b": Learnt(), "c": "foca"}, data, seeds=2, model=fresh)) == errors(
        card
    )


def test_a_kept_comparison_is_read_back_and_one_of_other_parts_is_refused(data, tmp_path):
    def small(width=6):
        return lambda: cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, width)), MLP((width, 3)))

    first = compared({"mine": Learnt()}, data, model=small(), directory=tmp_path)
    again = compared({"mine": Learnt()}, data, model=small(), directory=tmp_path)
    # the seconds that training took, too
    assert [r.to_json() for r in again.records] == [r.to_json() for r in first.records]
    with pytest.raises(ValueError, match=r"same run.*model"):
        compared({"mine": Learnt()}, data, model=small(width=7), directory=tmp_path)
    with pytest.raises(ValueError, match=r"same run.*first_loss"):
        compared({"mine": Learnt(start=0.5)}, data, model=small(), directory=tmp_path)


@pytest.mark.parametrize(
    ("methods", "error", "message"),
    [
        (["plain", "focca"], ValueError, "Did you mean 'foca'"),
        ({"mine": "plane"}, ValueError, "Did you mean 'plain'"),
        (
            {"mine": nn.CrossEntropyLoss()},
            TypeError,
            "got CrossEntropyLoss.*subclass of clearance.losses.Loss",
        ),
        ({"mine": 3}, TypeError, "got int"),
        (
            {"mine": cl.Classifier(nn.Flatten(), nn.Linear(4, 2))},
            TypeError,
            r"got a trained model\. Audit each.*clearance\.diff",
        ),
        ({"mine": Learnt}, TypeError, r"a method must be .*got the class Learnt. Write Learnt\(\.\.\.\)"),
        ({}, ValueError, "at least one method"),
        ("plain", ValueError, "as a list or a mapping; got 'plain'"),
        (["plain", "plain"], ValueError, "each method once; got plain, plain"),
    ],
)
def test_what_is_no_method_is_refused_before_training(data, methods, error, message):
    with pytest.raises(error, match=message):
        compared(methods, data, on_run=lambda *_: pytest.fail("trained"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "`seeds`"),
        ({"epochs": 0}, "`epochs`"),
        ({"audits": ["accuracyy"]}, "Did you mean 'accuracy'"),
    ],
)
def test_settings_are_checked_before_training(data, settings, message):
    with pytest.raises(ValueError, match=message):
        compared(["plain"], data, on_run=lambda *_: pytest.fail("trained"), **settings)


def test_training_images_are_not_taken_for_a_test(data):
    with pytest.raises(ValueError, match="`test` must be images that the model was not trained on"):
        cl.compare(["plain"], data.train, data.train, on_run=lambda *_: pytest.fail("trained"))


def test_an_extractor_that_is_not_there_is_refused(data):
    with pytest.raises(ValueError, match="Did you mean 'small-cnn'"):
        compared(["plain"], data, model="small-cnm")


def test_a_builder_that_builds_something_else_is_refused(data):
    with pytest.raises(TypeError, match="must build a clearance Classifier; got Linear"):
        compared(["plain"], data, model=lambda: nn.Linear(2, 2))
    for method, part in (("batchnorm", "norm"), ("dropout", "dropout")):
        with pytest.raises(
            ValueError, match=f"must be a name for the method '{method}', which changes .*`{part}`"
        ):
            compared(["plain", method], data, model=lambda: cl.Classifier(nn.Flatten(), MLP((64, 3))))


def test_data_may_be_tensors(data):
    train, test = ((s.images, s.labels) for s in (data.train, data.test))
    card = cl.compare(["plain"], train, test, seeds=1, epochs=1, audits=["accuracy"])
    assert {r.dataset for r in card.records} == {"images"}


QUICK = {"co_adaptation": {"per_class": [1], "repetitions": [5], "hidden": [4]}}


def test_audits_may_be_objects_and_have_settings(data):
    audits = [Calibration(validation=data.train), "co_adaptation"]
    settings = {"co_adaptation": {"per_class": [1], "repetitions": [3], "hidden": [4], "all_images": False}}
    card = compared(["plain"], data, audits=audits, audit_settings=settings)
    recorded = card.report.recipe["audit_settings"]
    assert recorded["calibration"]["validation"]["images"] == len(data.train)
    assert recorded["co_adaptation"]["per_class"] == [1]
    assert {m.audit for m in card.measurements} >= {"calibration", "co_adaptation"}
    with pytest.raises(
        ValueError, match="settings must belong to the chosen audits; got settings of 'churn'"
    ):
        compared(["plain"], data, audit_settings={"churn": {"heads": 2}})


def test_audits_by_name_keep_the_settings_of_the_tuned_recipe():
    train, test = cl.load_dataset("digits"), cl.load_dataset("digits", split="test")
    card = cl.compare(["plain"], train, test, seeds=1, steps=2, audits=["co_adaptation"])
    tuned = tuned_recipe("digits").audit_settings["co_adaptation"]
    assert card.report.recipe["audit_settings"]["co_adaptation"]["repetitions"] == list(tuned["repetitions"])


def test_the_command_and_python_run_the_same_comparison(data):
    """The same numbers from a recipe that names its images, in processes, and from the images themselves."""
    recipe = dataclasses.replace(
        tuned_recipe("digits"), seeds=1, epochs=1, train_fraction=0.1, audits=("accuracy",)
    )
    recipe = dataclasses.replace(recipe, methods={"plain": recipe.methods["plain"]})
    here = Comparison(recipe, data=build_data(recipe)).run()
    assert errors(Comparison(recipe).run(1)) == errors(here)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_worker_processes_cannot_import_is_refused_before_any_run(tmp_path):
    def build():
        return cl.Classifier(nn.Flatten(), MLP((64, 3)))

    train, test = (gaussian_images(per_class=6, seed=seed) for seed in (0, 1))
    with pytest.raises(ValueError, match=r"Define methods, models and audits of your own in a file"):
        cl.compare(["plain"], train, test, model=build, epochs=1, engine=1, directory=tmp_path / "runs")
    assert not [*(tmp_path / "runs").glob("*seed*")]


@pytest.mark.parametrize("engine", [None, 2])
def test_partial_pages_name_their_seeds_and_leave_nothing_behind(data, tmp_path, engine):
    """Pages at one, two and four of five seeds; the finished folder is to the byte what it is without them."""
    recipe = dataclasses.replace(
        tuned_recipe("digits"), seeds=5, epochs=1, batch_size=12, audits=("accuracy",), model="tiny-cnn"
    )
    recipe = dataclasses.replace(recipe, methods={name: recipe.methods[name] for name in ("plain", "lgm")})
    seen = []

    def on_seed(card):
        page = card.save_folder(tmp_path / "partial").read_text("utf-8")
        seeds = card.report.recipe["partial"]["seeds"]
        assert f"{seeds}</data> of " in page
        methods = [(note.method, note.seed) for note in card.report.runs]
        assert len(methods) == 2 * seeds
        assert {seed for _, seed in methods} == {seed for method, seed in methods if method == "plain"}
        seen.append(seeds)

    card = Comparison(recipe, data=data).run(engine, directory=tmp_path / "runs", on_seed=on_seed)
    assert seen == [1, 2, 4]
    assert "partial" not in card.report.recipe
    card.save_folder(tmp_path / "partial")
    card.save_folder(tmp_path / "whole")
    assert files(tmp_path / "partial") == files(tmp_path / "whole")


class TestAudit:
    def test_warnings_as_errors_leave_a_replaced_forward_in_place(self, model, data):
        half = model.to(torch.bfloat16)
        half.forward = replaced = half.forward
        with pytest.raises(UserWarning, match="are audited in a float32 copy"):
            cl.audit(half, train=data.train, test=data.test, audits=["accuracy"])
        assert half.forward is replaced

    @pytest.fixture
    def model(self):
        torch.manual_seed(0)
        return cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), MLP((6, 3)))

    def test_a_model_with_fewer_outputs_than_classes_is_refused(self, data):
        narrow = cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), MLP((6, 2)))
        with pytest.raises(ValueError, match=r"an output for each of the 3 classes; got 2"):
            cl.audit(narrow, train=data.train, test=data.test, audits=["accuracy"])

    def test_the_card_shows_itself_and_can_be_saved(self, model, data, tmp_path):
        card = cl.audit(
            model, train=data.train, test=data.test, audits=["accuracy", "class_scatter"], name="mine"
        )
        assert {r.method for r in card.records} == {"mine"}
        assert {m.audit for m in card.measurements} == {"accuracy", "class_scatter"}
        assert [(e.audit, e.kind) for e in card.exhibits] == [
            ("accuracy", "per_image"),
            ("class_scatter", "scatter"),
        ]
        page = card.save(tmp_path / "new" / "audit.html")
        assert page.read_text("utf-8") == card.to_html()
        assert "<iframe" in card._repr_html_()
        assert "mine" in repr(card)

    def test_the_default_audits_are_those_of_the_first_screen(self, model, data):
        card = cl.audit(model, train=data.train, test=data.test)
        assert {m.audit for m in card.measurements} == {*MODEL_AUDITS} - {"out_of_distribution"}

    def test_the_seed_decides(self, model, data):
        def found(seed):
            card = cl.audit(
                model,
                train=data.train,
                test=data.test,
                audits=["co_adaptation"],
                audit_settings=QUICK,
                seed=seed,
            )
            return [m.value for m in card.measurements]

        assert found(0) == found(0)
        assert found(0) != found(1)

    def test_a_plain_module_is_refused_with_the_way_out(self, data):
        with pytest.raises(TypeError, match=r"got Sequential.*clearance\.wrap"):
            cl.audit(nn.Sequential(nn.Flatten()), train=data.train, test=data.test)  # type: ignore[arg-type]

    def test_training_images_are_no_held_out_ones(self, model, data):
        with pytest.raises(
            ValueError, match=r"`test` must be images that the model was not trained on; got the \d+"
        ):
            cl.audit(model, train=data.train, test=data.train, audits=["accuracy"])

    def test_nor_are_some_of_them(self, model, data):
        some = data.train.subset(torch.arange(0, len(data.train), 2))
        with pytest.raises(ValueError, match="`test` must be images that the model was not trained on"):
            cl.audit(model, train=data.train, test=some, audits=["accuracy"])

    def test_that_many_test_images_were_trained_on_is_said(self, model, data):
        both = cl.ImageSet(
            torch.cat([data.train.images, data.test.images[:7]]),
            torch.cat([data.train.labels, data.test.labels[:7]]),
            data.train.classes,
        )
        with pytest.warns(
            UserWarning, match=rf"7 of {len(data.test)} test images are among the training images"
        ):
            cl.audit(model, train=both, test=data.test, audits=["accuracy"])

    def test_an_unknown_audit_is_refused(self, model, data):
        with pytest.raises(ValueError, match="Did you mean 'co_adaptation'"):
            cl.audit(model, train=data.train, test=data.test, audits=["coadaptation"])

    def test_one_word_is_no_list_of_audits(self, model, data):
        with pytest.raises(TypeError, match=r"`audits` must be a list of names.*Write \['accuracy'\]"):
            cl.audit(model, train=data.train, test=data.test, audits="accuracy")


def test_a_function_that_gives_the_same_classifier_twice_is_refused(data):
    only = cl.Classifier(nn.Flatten(), MLP((64, 3)))
    with pytest.raises(ValueError, match="`model` must build a fresh classifier at every call"):
        cl.compare({"a": "plain", "b": "plain"}, data.train, data.test, model=lambda: only, seeds=1, epochs=1)


def test_so_is_one_around_the_same_layers(data):
    """`wrap` makes a classifier at every call, around what it is given; what is frozen may be shared."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 3))

    def again():
        return cl.wrap(net, example=data.train.images[:4])

    with pytest.raises(ValueError, match="it returned layers of an earlier call"):
        cl.compare(["plain"], data.train, data.test, model=again, seeds=2, epochs=1, audits=["accuracy"])
    frozen = nn.Linear(64, 6).requires_grad_(requires_grad=False)

    def on_top():
        return cl.Classifier(nn.Sequential(nn.Flatten(), frozen, nn.Linear(6, 6)), MLP((6, 3)))

    shared = cl.compare(
        ["plain"], data.train, data.test, model=on_top, seeds=2, epochs=1, audits=["accuracy"]
    )
    assert {record.seed for record in shared.records} == {0, 1}


def test_a_classifier_in_place_of_a_function_is_refused(data):
    with pytest.raises(
        TypeError, match=r"`model` must be a name or a function .* got a Classifier, which all runs"
    ):
        cl.compare(["plain"], data.train, data.test, model=cl.Classifier(nn.Flatten(), MLP((64, 3))))


class Finds(Audit):
    """Nothing."""

    name = "finds"

    def examine(self, subject):
        return Findings(())


def test_an_audit_that_finds_nothing_is_named():
    given = gaussian_images(per_class=8, seed=0), gaussian_images(per_class=8, seed=1)
    card = cl.compare(["plain"], *given, seeds=1, epochs=1, audits=["accuracy", Finds()])
    assert card.report.recipe["audits_without_numbers"] == ["finds"]


def test_an_audit_of_a_loader_leaves_the_caller_s_random_numbers_alone(data):
    torch.manual_seed(0)
    model = cl.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), MLP((6, 3)))
    test = torch.utils.data.TensorDataset(data.test.images, data.test.labels)
    loader = torch.utils.data.DataLoader(test, batch_size=16)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    cl.audit(model, train=data.train, test=loader, audits=["accuracy"])
    assert torch.equal(torch.get_rng_state(), before)
