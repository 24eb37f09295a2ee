"""Lightning: audits as a callback; losses and FOCA as the training step of a LightningModule."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearance.integrations._hosted import Audits, Hosted, classifier_in
from clearance.losses import Loss
from clearance.models import Classifier
from clearance.report import Card
from clearance.training import FOCA

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise ImportError("this needs Lightning: pip install lightning.") from error


class TrainsClassifier:
    """A mixin that gives a LightningModule its steps: those of a loss, or of FOCA.

    Lightning's optimiser, precision, accumulation, clipping and schedule are used. The module sets `model`, a
    Classifier, `objective`, a Loss or FOCA, and for FOCA `images`, its training images; it says which parameters the
    optimiser moves. Batches are (images, labels), images in [0, 1]. The terms of the loss are logged as ``train_...``
    and ``val_...``, the sum as ``train_loss`` and ``val_loss``, and the share of wrong predictions as ``val_error``.
    Under FOCA the head is trained when training ends: checkpoints before that have an untrained one, and the names of
    validations begin with ``val_untrained_head_``, so that no callback stops, or chooses a model, by them. ::

        class Net(TrainsClassifier, LightningModule):
            def __init__(self, network, example):
                super().__init__()
                self.model = clearance.wrap(network, example=example)
                self.objective = clearance.losses.LargeMarginLoss(("input",))

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.05)
    """

    model: Classifier
    objective: Loss | FOCA
    images: Any = None
    hosted: Any = None
    _saved: Mapping[str, Any] | None = None

    def setup(self, stage: str) -> None:
        """Freeze what is not trained, before Lightning looks at the parameters."""
        super().setup(stage)  # type: ignore[misc]
        if self.hosted is not None:
            self.hosted.thaw()
        # one that was trained has the state that a checkpoint needs
        if stage == "fit" or self.hosted is None or not self.hosted.is_of(self.objective, self.model):
            self.hosted = Hosted(self.objective, self.model, self.images)
        if stage == "fit":
            self.hosted.freeze()

    def on_fit_start(self) -> None:
        """Start on the device."""
        super().on_fit_start()  # type: ignore[misc]
        saved, self._saved = self._saved, None
        self.hosted.begin(saved if self.trainer.ckpt_path else None)  # type: ignore[attr-defined]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        del batch_idx
        images, labels = batch
        terms = self.hosted.training_loss(images, labels)
        self._log("train", {**terms.terms, "loss": terms.total}, len(labels))
        return terms.total

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        """Lightning's step, and what follows it."""
        super().optimizer_step(*given, **named)  # type: ignore[misc]
        self.hosted.after_step()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log the loss and the error of the model's own head."""
        del batch_idx
        images, labels = batch
        terms, logits = self.hosted.evaluation(images, labels)
        error = (logits.argmax(dim=1) != labels).float().mean()
        split = "val" if self.hosted.head_is_trained else "val_untrained_head"
        self._log(split, {**terms.terms, "loss": terms.total, "error": error}, len(labels))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log the error of the model's own head."""
        del batch_idx
        images, labels = batch
        error = (self.model(images).argmax(dim=1) != labels).float().mean()
        self._log("test", {"error": error}, len(labels))

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The logits of a batch, with labels or without."""
        del batch_idx
        return self.forward(batch[0] if isinstance(batch, list | tuple) else batch)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        logits: Tensor = self.model(images)
        return logits

    def on_train_end(self) -> None:
        """Under FOCA, train the head that the model keeps."""
        super().on_train_end()  # type: ignore[misc]
        with torch.inference_mode(mode=False), torch.enable_grad():
            self.hosted.finish()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state of the loss, and FOCA's."""
        super().on_save_checkpoint(checkpoint)  # type: ignore[misc]
        if self._saved is not None and (self.hosted is None or self.hosted.session is None):
            checkpoint["clearance"] = self._saved  # not yet gone on with
        elif self.hosted is not None:
            checkpoint["clearance"] = self.hosted.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep this state until training goes on."""
        super().on_load_checkpoint(checkpoint)  # type: ignore[misc]
        self._saved = checkpoint.get("clearance")

    def _log(self, split: str, numbers: Mapping[str, Tensor], samples: int) -> None:
        named = {f"{split}_{name}": value.detach() for name, value in numbers.items()}
        together = not split.startswith("train")  # of several processes: a monitored number is of all images
        self.log_dict(named, batch_size=samples, sync_dist=together)  # type: ignore[attr-defined]


class AuditCallback(Callback):
    """Audits the Classifier in a LightningModule every n epochs, and when training has ended.

    The numbers go to the trainer's logger, with names that begin with ``audit/``. Of several processes the first
    audits.

    Args:
        train: The training images, as :func:`clearance.audit` takes them.
        test: Held-out images of the same classes.
        every: Epochs between two audits, at least 1; None audits at the end alone.
        folder: Where each page is written, as ``epoch-N.html``; None writes none.
        settings: Other arguments of :func:`clearance.audit`, such as ``audits=["accuracy"]``.
    """

    def __init__(
        self,
        train: Any,
        test: Any,
        every: int | None = None,
        folder: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self.audits = Audits(train, test, every, folder, None, settings)

    @property
    def cards(self) -> dict[int, Card]:
        """The cards, by epoch."""
        return self.audits.cards

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Read the images."""
        if trainer.is_global_zero:
            self.audits.prepare(classifier_in(pl_module))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Audit, if it is due."""
        if self.audits.due(trainer.current_epoch + 1):
            self._audit(trainer, pl_module, trainer.current_epoch + 1)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Audit what training has ended with."""
        self._audit(trainer, pl_module, trainer.current_epoch)

    def _audit(self, trainer: Any, module: Any, epoch: int) -> None:
        if trainer.is_global_zero:
            card = self.audits.audit(classifier_in(module), epoch)
            if trainer.logger is not None and card is not None:
                numbers = {f"audit/{name}": value for name, value in card.flat().items()}
                trainer.logger.log_metrics(numbers, step=trainer.global_step)
