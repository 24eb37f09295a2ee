"""Hugging Face's Trainer itself: losses and FOCA in its loop, audits between its epochs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import clearance as cl
from clearance.losses import CenterLoss, LargeMarginLoss
from clearance.training import FOCA
from on_processes import check_that_processes_agree

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install transformers"
)
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install accelerate")
from clearance.integrations.transformers import (  # noqa: E402 - needs the package
    AuditCallback,
    TrainsClassifier,
    _check_arguments,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of other packages
    pytest.mark.filterwarnings("error::clearance.losses.TrainingWarning"),
]
MEAN, STD = 0.3, 0.4


class ClassifierTrainer(TrainsClassifier, transformers.Trainer):  # type: ignore[name-defined]
    hosted: Any


@pytest.fixture(scope="module")
def digits():
    return cl.load_dataset("digits"), cl.load_dataset("digits", split="test")


def network():
    """A small ResNet of transformers, cut by clearance."""
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        num_channels=1, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=10, layer_type="basic",
        downsample_in_first_stage=False,
    )  # fmt: skip
    return transformers.ResNetForImageClassification(config)


def wrapped(digits):
    return cl.wrap(network(), example=digits[0].images[:4], mean=MEAN, std=STD, verbose=False)


def items(data):
    """As an image processor gives them: normalised."""
    return [
        {"pixel_values": (image - MEAN) / STD, "labels": int(label)}
        for image, label in zip(data.images, data.labels, strict=True)
    ]


def trainer(digits, folder, objective=None, model=None, callbacks=(), **options):
    settings = {
        "num_train_epochs": 5, "per_device_train_batch_size": 32, "learning_rate": 0.01, "use_cpu": True, "seed": 0,
        "report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no",
    } | options  # fmt: skip
    train, test = (items(some) for some in digits)
    return ClassifierTrainer(
        wrapped(digits) if model is None else model,
        transformers.TrainingArguments(str(folder), **settings),
        train_dataset=train, eval_dataset=test, objective=objective, callbacks=list(callbacks),
        images=digits[0] if isinstance(objective, FOCA) else None,
        compute_metrics=lambda found: {"accuracy": float(np.mean(found.predictions.argmax(1) == found.label_ids))},
    )  # fmt: skip


def accuracy(model, data):
    return float((model.eval()(data.images).argmax(dim=1) == data.labels).double().mean())


@pytest.mark.parametrize(
    "objective", [LargeMarginLoss(("input",), every=2), FOCA(reuse=2)], ids=["margin", "foca"]
)
def test_bfloat16_accumulation_and_schedule_stay_the_trainers(digits, tmp_path, objective):
    """The extractor and the loss's layers see bfloat16, as in the Trainer's own loss; steps are the Trainer's."""
    host = trainer(digits, tmp_path, objective, bf16=True, gradient_accumulation_steps=2)
    model, seen = host.hosted.model, set()
    conv = next(part for part in model.extractor.modules() if isinstance(part, torch.nn.Conv2d))
    conv.register_forward_hook(
        lambda part, _, output: seen.add((output.dtype, model.training, torch.is_grad_enabled()))
    )
    moved = []
    host.create_optimizer().register_step_pre_hook(lambda *_: moved.append(1))
    host.train()
    assert (torch.bfloat16, True, True) in seen
    assert host.state.global_step == len(moved)
    assert len(moved) == pytest.approx(5 * len(digits[0]) / 64, abs=5)
    found = host.evaluate()
    assert found["eval_accuracy"] > 0.9
    assert found["eval_loss"] > 0
    if isinstance(objective, FOCA):
        session = host.hosted.session
        assert session.steps == len(moved)
        assert session.counts()["drawn_heads"] == -(-len(moved) // 2)
        assert all(parameter.requires_grad for parameter in model.parameters())
    else:
        assert int(objective.steps) == len(moved)


def test_the_gradient_is_that_of_the_loss(digits, tmp_path):
    """One step of SGD in full precision."""
    loss = LargeMarginLoss(("input",))
    host = trainer(digits, tmp_path, loss, max_steps=1, optim="sgd", learning_rate=0.1, lr_scheduler_type="constant",
                   max_grad_norm=0.0, per_device_train_batch_size=64)  # fmt: skip
    batch = next(iter(host.get_train_dataloader()))
    by_hand = wrapped(digits)
    outputs = by_hand.outputs((batch["pixel_values"] * STD + MEAN).clamp(0, 1), loss.layers)
    loss(outputs, batch["labels"]).total.backward()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    optimizer.step()
    host.train()
    for one, other in zip(host.hosted.model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_losses_parameters_are_trained_too(digits, tmp_path):
    loss = CenterLoss(16, 10, update="gradient", weight=1.0)
    trainer(digits, tmp_path, loss, num_train_epochs=1).train()
    assert bool(loss.centres.any())


def test_audits_between_epochs_and_at_the_end(digits, tmp_path):
    train, test = digits
    watching = AuditCallback(train, test, every=2, folder=tmp_path, audits=["accuracy"], verbose=False)
    host = trainer(digits, tmp_path, FOCA(), callbacks=[watching], num_train_epochs=3)
    host.train()
    assert list(watching.cards) == [2, 3]
    assert watching.cards[3].measurements[0].value == pytest.approx(
        1 - accuracy(host.hosted.model, digits[1])
    )
    assert watching.cards[3].measurements[0].value < 0.2
    assert (tmp_path / "epoch-3.html").exists()


@pytest.mark.parametrize("around", [lambda loss: loss, FOCA], ids=["loss", "foca"])
def test_a_resumed_run_goes_on_with_the_state_of_the_loss(digits, tmp_path, around):
    def run(resumed, epochs):
        loss: Any = LargeMarginLoss(("input",), every=2)
        host = trainer(digits, tmp_path, around(loss), num_train_epochs=epochs, save_strategy="epoch")
        host.train(resume_from_checkpoint=resumed)
        return host, loss

    _, once = run(None, 1)
    host, twice = run(True, 2)
    assert host.state.global_step == int(twice.steps) == 2 * int(once.steps) == 82
    if host.hosted.session is not None:
        assert host.hosted.session.steps == 82
    (tmp_path / "checkpoint-82" / "loss_state.pt").unlink()
    with pytest.warns(UserWarning, match=r"no loss_state\.pt: loss and FOCA begin anew"):
        assert int(run(True, 3)[1].steps) == 41


def test_labels_are_not_needed_to_predict(digits, tmp_path):
    host = trainer(digits, tmp_path, num_train_epochs=1)
    images = [{"pixel_values": one["pixel_values"]} for one in items(digits[1])]
    with torch.no_grad():
        wanted = host.hosted.model.eval()(digits[1].images)
    np.testing.assert_allclose(host.predict(images).predictions, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"must hold `pixel_values`.*got image\. Rename"):
        host._images({"image": torch.zeros(1)})


@pytest.mark.parametrize("name", ["label_smoothing_factor", "gradient_checkpointing"])
def test_settings_that_would_do_nothing_or_fail_are_refused(digits, tmp_path, name):
    with pytest.raises(ValueError, match=f"`{name}` must be left out with a Classifier"):
        trainer(digits, tmp_path, **{name: 0.5 if name == "label_smoothing_factor" else True})
    with pytest.raises(ValueError, match="`compute_loss_func` must be left out"):
        ClassifierTrainer(
            wrapped(digits),
            transformers.TrainingArguments(str(tmp_path), report_to=[]),
            compute_loss_func=lambda *_: 0,
        )
    with pytest.raises(ValueError, match=r"`load_best_model_at_end` must be left out.*Under FOCA"):
        trainer(
            digits,
            tmp_path,
            FOCA(),
            load_best_model_at_end=True,
            eval_strategy="epoch",
            save_strategy="epoch",
        )


def test_several_gpus_in_one_process_are_refused():
    """The Trainer would put DataParallel around the model, which cannot gather its outputs."""
    with pytest.raises(ValueError, match=r"`DataParallel` must be left out.*CUDA_VISIBLE_DEVICES=0"):
        _check_arguments(SimpleNamespace(n_gpu=2), None, under_foca=False)


def test_an_optimiser_with_its_schedule_needs_the_parameters_of_the_loss(digits, tmp_path):
    model, loss = wrapped(digits), CenterLoss(16, 10, update="gradient")

    def host(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        settings = transformers.TrainingArguments(
            str(tmp_path), max_steps=2, report_to=[], save_strategy="no"
        )
        return ClassifierTrainer(
            model, settings, train_dataset=items(digits[0]), objective=loss, optimizers=(optimizer, schedule)
        )

    with pytest.raises(ValueError, match="`optimizers` must hold the parameters of `objective`"):
        host(model.parameters()).train()
    host([*model.parameters(), *loss.parameters()]).train()


def test_the_best_model_comes_with_the_state_of_its_loss(digits, tmp_path):
    """The best is asked to be the largest loss: that of the first epoch."""
    loss = CenterLoss(16, 10, weight=1.0)
    host = trainer(
        digits, tmp_path, loss, num_train_epochs=3, load_best_model_at_end=True, eval_strategy="epoch",
        save_strategy="epoch", metric_for_best_model="eval_loss", greater_is_better=True,
    )  # fmt: skip
    host.train()
    best = torch.load(Path(host.state.best_model_checkpoint, "loss_state.pt"), weights_only=True)["loss"]
    assert host.state.best_global_step < host.state.global_step
    assert torch.equal(loss.centres, best["centres"])
    assert host.evaluate()["eval_loss"] == pytest.approx(host.state.best_metric)


def test_pixels_that_the_models_normalisation_does_not_explain_are_refused(digits, tmp_path):
    model = cl.wrap(network(), example=digits[0].images[:4], verbose=False)
    with pytest.raises(
        ValueError, match=r"without these they lie in -0\.75 \.\. 1\.75.*preprocessing=processor"
    ):
        trainer(digits, tmp_path, model=model).train()


def test_pixels_that_were_never_normalised_are_refused(digits, tmp_path):
    host = trainer(digits, tmp_path)
    host.train_dataset = [
        {"pixel_values": image, "labels": int(k)}
        for image, k in zip(digits[0].images, digits[0].labels, strict=True)
    ]
    with pytest.raises(
        ValueError, match=r"must be normalised by the mean and std of the model; got .* column `images`"
    ):
        host.train()


def test_a_training_that_is_cut_off_leaves_no_frozen_head(digits, tmp_path):
    class Cut(transformers.TrainerCallback):  # type: ignore[name-defined]
        def on_step_end(self, args, state, control, **named):
            if state.global_step == 3:
                raise KeyboardInterrupt

    host = trainer(digits, tmp_path, FOCA(reuse=2), callbacks=[Cut()])
    with pytest.raises(KeyboardInterrupt):
        host.train()
    assert all(one.requires_grad for one in host.hosted.model.head.parameters())


def test_two_processes_end_as_one(tmp_path):
    """Under the Trainer's own DistributedDataParallel."""
    check_that_processes_agree("trainer", tmp_path)


def test_gradients_of_the_losses_parameters_do_not_add_up(digits, tmp_path):
    loss, seen = CenterLoss(16, 10, update="gradient"), []

    class Noted(transformers.TrainerCallback):  # type: ignore[name-defined]
        def on_pre_optimizer_step(self, *_, **__):
            assert loss.centres.grad is not None
            seen.append(float(loss.centres.grad.norm()))

    trainer(digits, tmp_path, loss, num_train_epochs=1, callbacks=[Noted()]).train()
    assert max(seen[20:]) < 3 * max(seen[:5])


def test_a_compiled_network_is_trained_with_a_loss(digits, tmp_path):
    host = trainer(digits, tmp_path, LargeMarginLoss(("input",)), max_steps=1)
    terms = host.hosted.training_loss(
        digits[0].images[:8], digits[0].labels[:8], torch.compile(host.model, backend="eager")
    )
    assert terms.total.requires_grad
