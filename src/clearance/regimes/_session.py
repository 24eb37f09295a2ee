"""A training run's moving parts, and all of their state as one tree."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.models.classifier import Classifier
from clearance.models.features import predictions
from clearance.objectives._objective import Objective
from clearance.regimes._distributed import (
    copy_from_first,
    mean_over_processes,
    process_count,
    process_rank,
)
from clearance.regimes._extractor_forward import ExtractorForward
from clearance.regimes._regime import Regime, Training


@dataclass
class Session:
    """Everything that moves while a classifier is trained; `step` counts the updates made so far."""

    model: Classifier
    objective: Objective
    optimizer: Optimizer
    schedule: LRScheduler | None
    generators: dict[str, torch.Generator]
    data: ImageSet
    validation: ImageSet | None
    regime: Regime
    forward: ExtractorForward
    seed: int
    epochs: int
    batch_size: int
    steps: int | None = None  # in place of `epochs`: the last pass may then be cut short
    watched: Mapping[str, ImageSet] = field(default_factory=dict)
    label_noise: float = 0.0
    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    diagnostics: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.training: Training = self.regime.start(self.model, self.data, self.optimizer, self.generators)
        self._sums: dict[str, float] = {}
        self._order: tuple[int, list[Tensor]] = (-1, [])
        self._rate = 0.0  # of the last update
        if self.steps_per_epoch == 0:
            raise ValueError(f"`train` must hold at least 2 images; got {len(self.data)}.")

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch; a last batch of one image a process is left out (batch statistics need two)."""
        full, rest = divmod(len(self.data), self.batch_size)
        return full + (1 if rest >= 2 * process_count() else 0)

    @property
    def total_steps(self) -> int:
        """Updates in the whole run."""
        return self.epochs * self.steps_per_epoch if self.steps is None else self.steps

    @property
    def at_epoch_end(self) -> bool:
        """Whether the last update was the last of its epoch, or of the run."""
        return self.step % self.steps_per_epoch == 0 or self.step == self.total_steps

    def advance(self) -> str | None:
        """One update; the reason in words if a loss term is not finite."""
        self.model.train()
        images, labels = self.data.batch(self._rows(), self.generators["augmentation"])
        self._rate = float(self.optimizer.param_groups[0]["lr"])
        with self.forward.in_use():
            loss = self.training.step(images, labels)
        self.step += 1
        if self.steps is not None:
            self._turn_schedule()
        values = [float(term.detach()) for term in loss.terms.values()]
        means = mean_over_processes(values, len(labels), images.device)
        for name, value in zip(loss.terms, means, strict=True):
            if not math.isfinite(value):
                return f"term {name} is not finite"
            self._sums[name] = self._sums.get(name, 0.0) + value
        return None

    def end_epoch(self) -> dict[str, float]:
        """Close the epoch: a row for the history and, if there are any, diagnostics; both as one row to log."""
        copy_from_first(self.model, self.objective)
        done, made = (self.step - 1) // self.steps_per_epoch, (self.step - 1) % self.steps_per_epoch + 1
        row: dict[str, float] = {
            "epoch": done + 1,
            "step": self.step,
            "lr": self._rate,
            **{name: total / made for name, total in self._sums.items()},
            **self._errors(),
        }
        if self.steps is None:
            self._turn_schedule()
        self._sums = {}
        self.history.append(row)
        seen = self.training.diagnostics()
        if not seen:
            return row
        means = mean_over_processes(list(seen.values()), 1, self.data.images.device)
        seen = dict(zip(seen, means, strict=True))
        self.diagnostics.append({"epoch": row["epoch"], "step": row["step"], **seen})
        return row | seen

    def _turn_schedule(self) -> None:
        """A course of the step size counts what the run's length counts: epochs, or updates."""
        if self.schedule is not None:
            self.schedule.step()

    def _errors(self) -> dict[str, float]:
        """Of the head that is in use, where there is one, on the sets that are looked at after every epoch."""
        if not self.regime.trains_head:
            return {}
        sets = {} if self.validation is None else {"validation": self.validation}
        return {
            f"{name}_error": float((predictions(self.model, data) != data.labels).double().mean())
            for name, data in {**sets, **self.watched}.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """All that decides how the run goes on."""
        return {
            "model": dict(self.model.state_dict()),
            "objective": dict(self.objective.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "regime": self.training.state_dict(),
            "generators": {name: stream.get_state() for name, stream in self.generators.items()},
            "forward": torch.get_rng_state(),
            "forward_cuda": torch.cuda.get_rng_state(self.data.images.device) if self._on_cuda else None,
            "step": self.step,
            "seconds": self.seconds,
            "sums": self._sums,
            "history": self.history,
            "diagnostics": self.diagnostics,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.training.load_state_dict(state["regime"])
        for name, stream in self.generators.items():
            stream.set_state(state["generators"][name])
        torch.set_rng_state(state["forward"])
        if self._on_cuda and state["forward_cuda"] is not None:
            torch.cuda.set_rng_state(state["forward_cuda"], self.data.images.device)
        self.step, self.seconds = state["step"], state["seconds"]
        self._sums, self.history = dict(state["sums"]), list(state["history"])
        self.diagnostics = list(state.get("diagnostics", []))

    @property
    def _on_cuda(self) -> bool:
        return self.data.images.is_cuda

    def _rows(self) -> Tensor:
        """The next batch's rows. An epoch's order depends on seed and epoch alone, so resuming is free."""
        epoch, place = divmod(self.step, self.steps_per_epoch)
        if self._order[0] != epoch:
            order = torch.randperm(len(self.data), generator=generator(self.seed, "batches", epoch))
            self._order = (epoch, list(order.split(self.batch_size)))
        share = self._order[1][place].tensor_split(process_count())[process_rank()]
        return share.to(self.data.images.device)


def final_state(session: Session) -> dict[str, Tensor]:
    """Model and objective as one dictionary of tensors, to be kept as safetensors."""
    parts = {"model": session.model, "objective": session.objective}
    return {f"{part}.{name}": v for part, module in parts.items() for name, v in module.state_dict().items()}


def load_final_state(session: Session, weights: dict[str, Tensor]) -> None:
    """The inverse of :func:`final_state`."""
    for part, module in (("model", session.model), ("objective", session.objective)):
        prefix = f"{part}."
        module.load_state_dict(
            {n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)}
        )
