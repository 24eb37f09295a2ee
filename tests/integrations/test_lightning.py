"""Lightning itself: losses and FOCA in its loop, audits between its epochs."""

from typing import Any

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.losses import GaussianMixtureLoss, LargeMarginLoss
from clearance.training import FOCA
from on_processes import check_that_processes_agree

lightning = pytest.importorskip(
    "lightning.pytorch", reason="Lightning is not installed: pip install lightning"
)
from clearance.integrations.lightning import AuditCallback, TrainsClassifier  # noqa: E402 - needs the package

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice on workers and loggers
    pytest.mark.filterwarnings("error::clearance.losses.TrainingWarning"),
]


@pytest.fixture(scope="module")
def digits():
    return cl.load_dataset("digits"), cl.load_dataset("digits", split="test")


class Net(TrainsClassifier, lightning.LightningModule):  # type: ignore[name-defined]
    objective: Any
    hosted: Any

    def __init__(self, objective, head=None, images=None):
        super().__init__()
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
        self.model = cl.Classifier(extractor, head or nn.Linear(64, 10), 0.3, 0.4)
        self.objective, self.images = objective, images

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 4)]


def loaders(digits, batch_size=32):
    from torch.utils.data import DataLoader, TensorDataset

    train, test = (TensorDataset(some.images, some.labels) for some in digits)
    order = torch.Generator().manual_seed(0)
    return DataLoader(train, batch_size, shuffle=True, generator=order, drop_last=True), DataLoader(test, 256)


def trained(net, digits, folder, **options):
    options = {"max_epochs": 6} | options
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, default_root_dir=folder, **options,
    )  # fmt: skip
    trainer.fit(net, *loaders(digits))
    return trainer


def accuracy(model, data):
    return float((model.eval()(data.images).argmax(dim=1) == data.labels).double().mean())


OBJECTIVES = {
    "margin": lambda: (LargeMarginLoss(("input", "extractor.1"), every=2), None),
    "mixture": lambda: (
        GaussianMixtureLoss({"start": 0.1, "factor": 1.2, "every": 50, "most": 0.3}),
        cl.heads.GaussianMixture(64, 10),
    ),
    "foca": lambda: (FOCA(reuse=2), None),
}


def some_outputs(model):
    return model.outputs(torch.rand(2, 1, 8, 8), ("input", "extractor.1")), torch.tensor([0, 1])


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_bfloat16_accumulation_schedule_and_validation_stay_lightnings(digits, tmp_path, name):
    objective: Any
    objective, head = OBJECTIVES[name]()
    net = Net(objective, head, digits[0])
    loss: Any = objective.loss if isinstance(objective, FOCA) else objective
    steps = []
    net.on_before_optimizer_step = lambda optimizer: steps.append(1)
    trainer = trained(
        net, digits, tmp_path, precision="bf16-mixed", accumulate_grad_batches=2, gradient_clip_val=1.0
    )
    batches = 6 * (len(digits[0]) // 32)
    assert trainer.global_step == len(steps) == batches // 2
    assert accuracy(net.model, digits[1]) > 0.9
    val = "val_untrained_head" if isinstance(objective, FOCA) else "val"
    assert {"train_loss", f"{val}_loss", f"{val}_error"} <= set(trainer.callback_metrics)
    if isinstance(objective, FOCA):
        assert "val_error" not in trainer.callback_metrics
        (found,) = trainer.validate(net, loaders(digits)[1], verbose=False)
        assert found["val_error"] < 0.1
        assert net.hosted.session.steps == len(steps)
        assert net.hosted.session.counts()["drawn_heads"] == -(-len(steps) // 2)
        assert all(parameter.requires_grad for parameter in net.model.parameters())
    else:
        assert int(loss.steps) == len(steps)
        assert {f"val_{term}" for term in loss(*some_outputs(net.model)).terms} <= set(
            trainer.callback_metrics
        )


def test_a_step_is_that_of_a_loop_by_hand(digits, tmp_path):
    """Margins in full precision: the same bits as the loop that the documents show."""
    net, by_hand = (Net(LargeMarginLoss(("input",))) for _ in range(2))
    trained(net, digits, tmp_path, max_epochs=1)
    model, loss = by_hand.model, by_hand.objective
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for images, labels in loaders(digits)[0]:
        optimizer.zero_grad()
        loss(model.outputs(images, loss.layers), labels).total.backward()
        optimizer.step()
    for one, other in zip(net.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_wrong_setting_of_an_audit_is_found_before_training(digits):
    train, test = digits
    with pytest.raises(ValueError, match="Did you mean 'accuracy'"):
        AuditCallback(train, test, audits=["acuracy"])
    with pytest.raises(TypeError, match=r"must be arguments of clearance\.audit: .*'audit'"):
        AuditCallback(train, test, audit=["accuracy"])


def test_a_trained_network_is_tested_asked_and_called(digits, tmp_path):
    net = Net(LargeMarginLoss(("input",)))
    trainer = trained(net, digits, tmp_path, max_epochs=1)
    loader = loaders(digits)[1]
    (found,) = trainer.test(net, loader, verbose=False)
    assert found["test_error"] == pytest.approx(1 - accuracy(net.model, digits[1]), abs=1e-6)
    logits = torch.cat(trainer.predict(net, loader))
    torch.testing.assert_close(logits, net.eval()(digits[1].images))


def test_audits_between_epochs_and_at_the_end_change_nothing(digits, tmp_path):
    train, test = digits
    watching = AuditCallback(train, test, every=2, folder=tmp_path, audits=["accuracy"], verbose=False)
    plain, audited = (Net(LargeMarginLoss(("input",))) for _ in range(2))
    trained(plain, digits, tmp_path, max_epochs=3)
    trained(audited, digits, tmp_path, max_epochs=3, callbacks=[watching])
    assert list(watching.cards) == [2, 3]
    assert watching.cards[3].measurements[0].value == pytest.approx(
        1 - accuracy(audited.model, digits[1]), abs=1e-6
    )
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["epoch-2.html", "epoch-3.html"]
    for one, other in zip(plain.model.parameters(), audited.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_last_audit_sees_the_head_that_foca_trains_at_the_end(digits, tmp_path):
    train, test = digits
    watching = AuditCallback(train, test, every=2, audits=["accuracy"], verbose=False)
    trained(Net(FOCA(), images=digits[0]), digits, tmp_path, max_epochs=2, callbacks=[watching])
    assert watching.cards[2].measurements[0].value < 0.1


def test_foca_goes_on_from_a_checkpoint(digits, tmp_path):
    """One epoch and one more are two: streams, heads and counts are in the checkpoint."""
    whole, parts = Net(FOCA(reuse=3), images=digits[0]), Net(FOCA(reuse=3), images=digits[0])
    trained(whole, digits, tmp_path, max_epochs=2)
    first = lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=1, default_root_dir=tmp_path,
        callbacks=[lightning.callbacks.ModelCheckpoint(tmp_path, filename="first")],
    )  # fmt: skip
    first.fit(parts, *loaders(digits))
    fresh = Net(FOCA(reuse=3), images=digits[0])
    again = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=2,
                              enable_checkpointing=False, default_root_dir=tmp_path)  # fmt: skip
    again.fit(fresh, *loaders(digits), ckpt_path=str(tmp_path / "first.ckpt"))
    assert fresh.hosted.session.steps == whole.hosted.session.steps
    assert fresh.hosted.session.counts() == whole.hosted.session.counts()
    assert accuracy(fresh.model, digits[1]) > 0.9


def test_the_state_of_focas_loss_is_in_the_checkpoint(digits, tmp_path):
    def foca():
        return FOCA(LargeMarginLoss(("input",), every=4))

    def trainer(epochs):
        keep = lightning.callbacks.ModelCheckpoint(tmp_path, filename=f"after-{epochs}")
        return lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=epochs,
                                 default_root_dir=tmp_path, callbacks=[keep])  # fmt: skip

    first, fresh, other = (Net(foca(), images=digits[0]) for _ in range(3))
    trainer(1).fit(first, *loaders(digits))
    trainer(2).fit(fresh, *loaders(digits), ckpt_path=str(tmp_path / "after-1.ckpt"))
    assert int(fresh.objective.loss.steps) == 2 * int(first.objective.loss.steps) == 80
    other.on_load_checkpoint(torch.load(tmp_path / "after-1.ckpt", weights_only=False))
    trainer(1).fit(other, *loaders(digits))  # a new training: what was loaded before is not continued
    assert other.hosted.session.steps == 40


def test_the_head_needs_gradients_after_foca_as_before(digits, tmp_path):
    net = Net(FOCA(), cl.heads.GaussianMixture(64, 10), digits[0])
    before = {name: one.requires_grad for name, one in net.model.head.named_parameters()}
    trainer = trained(net, digits, tmp_path, max_epochs=1)
    trainer.validate(net, loaders(digits)[1], verbose=False)
    assert {name: one.requires_grad for name, one in net.model.head.named_parameters()} == before


def test_what_is_missing_is_said(digits, tmp_path):
    with pytest.raises(ValueError, match="`images` must be the training images under FOCA"):
        trained(Net(FOCA()), digits, tmp_path)
    with pytest.raises(TypeError, match="`objective` must be a Loss or FOCA; got CrossEntropyLoss"):
        trained(Net(nn.CrossEntropyLoss()), digits, tmp_path)


def test_two_processes_end_as_one(tmp_path):
    """Under the package's own DistributedDataParallel."""
    check_that_processes_agree("lightning", tmp_path)


def test_a_search_for_the_learning_rate_trains_as_foca_does(digits, tmp_path):
    net = Net(FOCA(), images=digits[0])
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=1,
                                enable_checkpointing=False, default_root_dir=tmp_path)  # fmt: skip
    seen = []

    class First(lightning.Callback):  # type: ignore[name-defined]
        """Before the module's own start, as Lightning's search for the learning rate."""

        def on_fit_start(self, trainer, pl_module):
            pl_module.hosted.training_loss(digits[0].images[:16], digits[0].labels[:16])
            seen.append(pl_module.hosted.session.counts()["drawn_heads"])

    trainer.callbacks.insert(0, First())
    trainer.fit(net, *loaders(digits))
    assert seen[0] > 0


def test_a_checkpoint_made_after_a_validation_has_the_state_of_foca(digits, tmp_path):
    net, fresh = (Net(FOCA(), images=digits[0]) for _ in range(2))
    trainer = trained(net, digits, tmp_path, max_epochs=1)
    trainer.validate(net, loaders(digits)[1], verbose=False)
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    again = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=2,
                              enable_checkpointing=False, default_root_dir=tmp_path)  # fmt: skip
    again.fit(fresh, *loaders(digits), ckpt_path=str(tmp_path / "after.ckpt"))
    assert fresh.hosted.session.steps == 2 * net.hosted.session.steps
