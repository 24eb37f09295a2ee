"""What a training loop of another package calls: the loss of a batch, what follows a step, and audits in between."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import check_count
from clearance._describe import digest
from clearance._processes import process_count
from clearance._rng import cuda_in_use
from clearance.data import open_images
from clearance.experiments.audit import InMemory, audit
from clearance.experiments.audit_plan import AuditPlan
from clearance.losses import Loss
from clearance.models import Classifier
from clearance.models.classifier import check_classifier
from clearance.report import Card
from clearance.tensors import LossTerms, Outputs, joined
from clearance.training import FOCA
from clearance.training.foca import FOCATraining


class Hosted:
    """A loss, or FOCA, in steps that another package makes.

    Args:
        objective: A Loss, or FOCA.
        model: The classifier.
        images: FOCA's training images, as :func:`clearance.data.open_images` takes them.

    Raises:
        TypeError: If `objective` or `model` is something else.
        ValueError: If FOCA has no images.
    """

    def __init__(self, objective: Loss | FOCA, model: Classifier, images: Any = None) -> None:
        check_classifier(model)
        if not isinstance(objective, (Loss, FOCA)):
            raise TypeError(f"`objective` must be a Loss or FOCA; got {type(objective).__name__}.")
        if isinstance(objective, FOCA):
            if images is None:
                raise ValueError("`images` must be the training images under FOCA, for its heads; got none.")
            images = open_images(images, model.preprocessing)
        self.foca = objective if isinstance(objective, FOCA) else None
        self.loss = objective.loss if isinstance(objective, FOCA) else objective
        self.model, self.images = model, images
        self.session: FOCATraining | None = None
        self._seen: list[tuple[Outputs, Tensor]] = []
        self._frozen: list[tuple[nn.Parameter, bool]] = []

    def is_of(self, objective: Loss | FOCA, model: Classifier) -> bool:
        """Whether it was made for these."""
        return self.model is model and objective is (self.loss if self.foca is None else self.foca)

    def freeze(self) -> None:
        """Freeze the head until `finish` under FOCA, before the host looks at the parameters."""
        self.thaw()
        if self.foca is not None:
            self._frozen = [(one, one.requires_grad) for one in self.model.head.parameters()]
            self.model.head.requires_grad_(requires_grad=False)

    def thaw(self) -> None:
        """Let the head's parameters need gradients as before `freeze`, also after a training that was cut off."""
        for one, needed in self._frozen:
            one.requires_grad_(needed)
        self._frozen = []

    @property
    def head_is_trained(self) -> bool:
        """Whether the model's own head says anything: under FOCA it is trained at the end."""
        return not self._frozen

    def begin(self, saved: Mapping[str, Any] | None = None) -> None:
        """Start, once the model is on its device; `saved` is the `state_dict` of a checkpoint."""
        if saved is not None:
            self.loss.load_state_dict(saved["loss"])
        if self.foca is None:
            return
        draws = self.foca.generators(torch.initial_seed() % 2**63)
        self.session = self.foca.start(self.model, self.images, generators=draws)
        if saved is not None and "training" not in saved:
            warnings.warn("the checkpoint has no state of FOCA, which begins anew", stacklevel=2)
        elif saved is not None:
            self.session.load_state_dict(saved["training"])
            own = (
                self.foca.own_streams if process_count() > 1 else ()
            )  # a checkpoint has those of the first process
            for name in draws.keys() - set(own):
                draws[name].set_state(saved["generators"][name].cpu())

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the model: the loss's state, and FOCA's."""
        found: dict[str, Any] = {"loss": self.loss.state_dict()}
        if self.session is not None:
            found["training"] = self.session.state_dict()
            found["generators"] = {name: one.get_state() for name, one in self.session.generators.items()}
        return found

    def training_loss(
        self, images: Tensor, labels: Tensor, model: Callable[..., Any] | None = None
    ) -> LossTerms:
        """The loss to differentiate; `model` is what the host has put around the classifier."""
        self.loss.train().to(images.device)
        if (
            self.foca is not None and self.session is None
        ):  # before the training: a search for its learning rate
            self.begin()
        if self.session is not None:
            return self.session.loss(images, labels, model)
        outputs: Outputs = (self.model if model is None else model)(images, layers=self.loss.layers)
        terms: LossTerms = self.loss(outputs, labels)
        self._seen.append((outputs.detached(), labels))
        return terms

    def evaluation(
        self, images: Tensor, labels: Tensor, model: Callable[..., Any] | None = None
    ) -> tuple[LossTerms, Tensor]:
        """Loss and logits of the model's own head, which under FOCA is untrained until the end."""
        self.loss.eval().to(images.device)
        outputs: Outputs = (self.model if model is None else model)(images, layers=self.loss.layers)
        return self.loss(outputs, labels), outputs.logits

    @torch.no_grad()
    def after_step(self) -> None:
        """Follows each step of the optimiser."""
        if self.session is not None:
            self.session.after_step()
        if self._seen:
            self.loss.after_step(*joined(self._seen))
        self._seen.clear()

    def finish(self) -> None:
        """Train the head that the model keeps, under FOCA."""
        if self.session is not None:
            self.session.finish()
        self.thaw()


class Audits:
    """Audits of a network while it is trained, and at the end; nothing in the training changes.

    Args:
        train: The training images, as :func:`clearance.audit` takes them.
        test: Held-out images.
        every: Epochs between two audits; None audits at the end alone.
        folder: Where each page is written; None writes none.
        run: A tracker that gets the numbers; see :meth:`clearance.Card.log_to`.
        settings: Other arguments of :func:`clearance.audit`.
    """

    def __init__(
        self,
        train: Any,
        test: Any,
        every: int | None,
        folder: str | Path | None,
        run: Any,
        settings: Mapping[str, Any],
    ) -> None:
        if every is not None:
            check_count("every", every)
        try:
            inspect.signature(audit).bind(None, train=train, test=test, **settings)
        except TypeError as error:
            raise TypeError(f"settings of an audit must be arguments of clearance.audit: {error}.") from error
        AuditPlan.of(
            settings.get("audits"), settings.get("audit_settings")
        )  # a wrong name, before any training
        self.train, self.test, self.every, self.settings = train, test, every, dict(settings)
        self.folder, self.run = None if folder is None else Path(folder), run
        self.cards: dict[int, Card] = {}
        self._of = ""  # which weights were audited last
        self.unknown, self.normalised = (self.settings.pop(name, None) for name in ("unknown", "normalised"))
        self._images: dict[str, Any] = {}
        self._read_for: Classifier | None = None

    def prepare(self, model: Classifier) -> dict[str, Any]:
        """The images as the model needs them, read once: before training, so that a mistake costs none."""
        if self._read_for is not model:
            given = InMemory(model, self.train, self.test, self.unknown, normalised=bool(self.normalised))
            images, self._read_for = given.opened(), model
            self._images = {"train": images.train, "test": images.test, "unknown": images.unknown}
        return self._images

    def due(self, epoch: int) -> bool:
        """Whether an audit follows this epoch, the first being 1."""
        return self.every is not None and epoch % self.every == 0

    def audit(self, model: Classifier, epoch: int) -> Card | None:
        """The card of the model after this epoch; None if its weights are those that were audited last."""
        weights = digest(model.state_dict().items())
        if weights == self._of:
            return None
        with (
            torch.inference_mode(mode=False),
            torch.enable_grad(),
            torch.random.fork_rng(devices=cuda_in_use()),
            _alone() as engine,
        ):
            images = self.prepare(model)
            settings = {**self.settings, "engine": self.settings.get("engine") or engine}
            card = audit(model, **images, **settings)
        self.cards[epoch], self._of = card, weights
        if self.folder is not None:
            card.save(self.folder / f"epoch-{epoch}.html")
        if self.run is not None:
            card.log_to(self.run, step=epoch)
        return card


def _alone() -> AbstractContextManager[Executor | None]:
    """An engine of this process where several train together, which else would share the audit out among them."""
    return ThreadPoolExecutor(1) if process_count() > 1 else nullcontext()


def classifier_in(module: torch.nn.Module) -> Classifier:
    """The first Classifier in a module.

    Raises:
        ValueError: If there is none.
    """
    for part in module.modules():
        if isinstance(part, Classifier):
            return part
    raise ValueError(
        f"the {type(module).__name__} must hold a clearance Classifier: self.model = clearance.wrap(network, ...)."
    )
