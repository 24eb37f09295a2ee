"""Hugging Face's Trainer: losses and FOCA as its loss; audits as a callback."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearance._processes import average_gradients, copy_from_first
from clearance.integrations._hosted import Audits, Hosted, classifier_in
from clearance.losses import CrossEntropyLoss, Loss
from clearance.models import Classifier
from clearance.report import Card
from clearance.training import FOCA

try:
    from transformers import TrainerCallback
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise ImportError("this needs transformers: pip install transformers accelerate.") from error

_SLACK = 0.01  # rounding of pixels, on both sides of [0, 1]
_STATE = "loss_state.pt"


class TrainsClassifier:
    """A mixin that makes a Trainer train a Classifier with a loss, or with FOCA.

    Everything passes through the model as the Trainer has prepared it, so that mixed precision, accumulation, clipping,
    several processes and the schedule stay the Trainer's.

    Args:
        given: Of the Trainer.
        objective: A Loss, or FOCA; None is cross-entropy.
        images: FOCA's training images, as :func:`clearance.data.open_images` takes them.
        named: Of the Trainer. `model` is a Classifier, as ``clearance.wrap(hf_model, preprocessing=processor, ...)``
            gives it. Batches hold ``pixel_values`` as the image processor gives them (the model's mean and std are
            undone), or ``images`` in [0, 1]; and ``labels``.

    Raises:
        ValueError: If the Trainer is given another loss, smoothed labels or gradient checkpointing, or is to load the
            best model under FOCA.

    Checkpoints hold the state of the loss, and FOCA's, as ``loss_state.pt``. Under FOCA the head is trained when
    training ends; evaluations and checkpoints before that have an untrained one. ::

        class ClassifierTrainer(TrainsClassifier, Trainer): ...
        ClassifierTrainer(model, arguments, train_dataset=data, objective=LargeMarginLoss(("input",))).train()
    """

    def __init__(
        self, *given: Any, objective: Loss | FOCA | None = None, images: Any = None, **named: Any
    ) -> None:
        model: Any = named.get("model", given[0] if given else None)
        self.hosted = Hosted(CrossEntropyLoss() if objective is None else objective, model, images)
        _check_arguments(
            named.get("args", given[1] if len(given) > 1 else None),
            named.get("compute_loss_func"),
            under_foca=self.hosted.foca is not None,
        )
        super().__init__(*given, **named)
        self.label_names = ["labels"]
        self._signature_columns = ["pixel_values", "images", "labels", "label", "label_ids"]
        self._following = _Following(self.hosted)
        self._prepared = False  # whether a batch was looked at
        self.callback_handler.callbacks.insert(0, self._following)  # type: ignore[attr-defined]

    def train(self, resume_from_checkpoint: str | bool | None = None, **named: Any) -> Any:
        """The Trainer's, also with the state of the loss and FOCA's."""
        self.hosted.freeze()
        found = resume_from_checkpoint
        if found is True:
            found = get_last_checkpoint(self.args.output_dir)  # type: ignore[attr-defined]
        self._following.resumed = Path(found) if found else None
        try:
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **named)  # type: ignore[misc]
        finally:
            self.hosted.thaw()  # also where it was cut off

    def _load_best_model(self) -> None:
        """The Trainer's, also with the state of the loss."""
        super()._load_best_model()  # type: ignore[misc]
        best = self.state.best_model_checkpoint  # type: ignore[attr-defined]
        if best is not None and (path := Path(best, _STATE)).is_file():
            self.hosted.loss.load_state_dict(_read_state(path)["loss"])

    def create_optimizer(self, *given: Any, **named: Any) -> torch.optim.Optimizer:
        """The Trainer's, which takes a model from version 5 on, with the parameters of the loss."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(*given, **named)  # type: ignore[misc]
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        own = [one for one in self.hosted.loss.parameters() if id(one) not in held]
        if own and self.lr_scheduler is not None:  # type: ignore[attr-defined]
            raise ValueError(
                "`optimizers` must hold the parameters of `objective`, too; got an optimiser without them, and its "
                "schedule. Give it [*model.parameters(), *objective.parameters()], or leave the schedule out."
            )
        if own:
            optimizer.add_param_group({"params": own, "weight_decay": 0.0})
        return optimizer

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **named: Any
    ) -> Any:
        """The sum of the loss's terms, through the prepared model."""
        del named
        images, labels = self._images(inputs), inputs["labels"]
        if model.training and not return_outputs:
            return self.hosted.training_loss(images, labels, model).total
        terms, logits = self.hosted.evaluation(images, labels, model)
        return (terms.total, {"logits": logits}) if return_outputs else terms.total

    def prediction_step(self, model: Any, inputs: dict[str, Any], *given: Any, **named: Any) -> Any:
        """The Trainer's; without labels the logits alone."""
        if "labels" in inputs:
            return super().prediction_step(model, inputs, *given, **named)  # type: ignore[misc]
        with torch.no_grad():
            return None, model(self._images(self._prepare_inputs(inputs))), None  # type: ignore[attr-defined]

    def _images(self, inputs: dict[str, Any]) -> Tensor:
        """The images in [0, 1].

        Raises:
            ValueError: If there are none, or the model's mean and std do not bring them there; if the first batch is
                already there although the model normalises.
        """
        if "images" in inputs:
            return inputs["images"]
        if "pixel_values" not in inputs:
            raise ValueError(
                "a batch must hold `pixel_values`, as the image processor gives them, or `images` in [0, 1]; got "
                f"{', '.join(inputs)}. Rename the column, or give a data_collator."
            )
        classifier = self.hosted.model
        if not self._prepared:
            _check_prepared(inputs["pixel_values"], classifier)
            self._prepared = True
        found: Tensor = inputs["pixel_values"] * classifier.std + classifier.mean
        low, high = (float(end) for end in torch.aminmax(found))
        if low < -_SLACK or high > 1 + _SLACK:
            raise ValueError(
                "`pixel_values` must be images in [0, 1], normalised by the model's mean and std; without these they "
                f"lie in {low:.3g} .. {high:.3g}. Give clearance.wrap the image processor: preprocessing=processor."
            )
        return found.clamp(0, 1)


def _check_prepared(pixels: Tensor, model: Classifier) -> None:
    """Raise ValueError for a batch in [0, 1] where the model's mean and std are to be undone: no ordinary one is."""
    low, high = (float(end) for end in torch.aminmax(pixels))
    if bool((model.mean != 0).any()) and low >= 0 and high <= 1:
        raise ValueError(
            f"`pixel_values` must be normalised by the mean and std of the model; got a batch in {low:.3g} "
            f".. {high:.3g}. Call the column `images`, if its images are in [0, 1]."
        )


def _check_arguments(args: Any, loss_function: Any, *, under_foca: bool) -> None:
    """Raise ValueError for settings of the Trainer that would do nothing or fail."""
    refused = {
        "DataParallel": (
            getattr(args, "n_gpu", 1) > 1,
            "Start with torchrun, or let one GPU be seen: CUDA_VISIBLE_DEVICES=0.",
        ),
        "compute_loss_func": (loss_function is not None, "Give `objective`, which is the loss."),
        "label_smoothing_factor": (
            getattr(args, "label_smoothing_factor", 0) != 0,
            "Give an `objective` that smooths labels.",
        ),
        "gradient_checkpointing": (
            getattr(args, "gradient_checkpointing", False),
            "Switch it on in the network before it is wrapped.",
        ),
        "load_best_model_at_end": (
            under_foca and getattr(args, "load_best_model_at_end", False),
            "Under FOCA the head is trained at the end: evaluations before cannot tell which model is best.",
        ),
    }
    for name, (given, remedy) in refused.items():
        if given:
            raise ValueError(f"`{name}` must be left out with a Classifier; got one. {remedy}")


def _read_state(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251 - safe
    return found


class _Following(TrainerCallback):
    """What follows a step of the optimiser, and the end; the first callback, so that audits see a trained head."""

    def __init__(self, hosted: Hosted) -> None:
        self.hosted = hosted
        self.resumed: Path | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The model is on its device."""
        path = None if self.resumed is None else self.resumed / _STATE
        if path is not None and not path.is_file():
            warnings.warn(f"the checkpoint has no {_STATE}: loss and FOCA begin anew", stacklevel=2)
            path = None
        self.hosted.begin(None if path is None else _read_state(path))
        # it stands outside the module that DistributedDataParallel keeps alike
        copy_from_first(self.hosted.loss)

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """A checkpoint was written."""
        if state.is_world_process_zero:
            torch.save(
                self.hosted.state_dict(), Path(args.output_dir, f"checkpoint-{state.global_step}", _STATE)
            )

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """All gradients are there; those of the loss's own parameters are each process's."""
        own = [parameter for parameter in self.hosted.loss.parameters() if parameter.grad is not None]
        if own:
            average_gradients(own, samples=1)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The optimiser has moved; the Trainer forgets the gradients of its model alone."""
        self.hosted.after_step()
        self.hosted.loss.zero_grad()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Training has ended."""
        self.hosted.finish()


class AuditCallback(TrainerCallback):
    """Audits the Trainer's Classifier every n epochs, and when training has ended.

    Args:
        train: The training images, as :func:`clearance.audit` takes them.
        test: Held-out images of the same classes.
        every: Epochs between two audits, at least 1; None audits at the end alone.
        folder: Where each page is written, as ``epoch-N.html``; None writes none.
        run: A tracker that gets the numbers; see :meth:`clearance.Card.log_to`.
        settings: Other arguments of :func:`clearance.audit`, such as ``audits=["accuracy"]``.
    """

    def __init__(
        self, train: Any, test: Any, every: int | None = None, folder: str | Path | None = None, run: Any = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.audits = Audits(train, test, every, folder, run, settings)

    @property
    def cards(self) -> dict[int, Card]:
        """The cards, by epoch."""
        return self.audits.cards

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Read the images."""
        del args, control
        if state.is_world_process_zero:
            self.audits.prepare(classifier_in(model))

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Audit, if it is due."""
        del args, control
        if state.is_world_process_zero and self.audits.due(round(state.epoch)):
            self.audits.audit(classifier_in(model), round(state.epoch))

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Audit what training has ended with."""
        del args, control
        if state.is_world_process_zero:
            self.audits.audit(classifier_in(model), round(state.epoch))
