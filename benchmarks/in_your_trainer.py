"""Margins, L-GM and FOCA in other packages' trainers, beside cl.fit with the same optimiser, schedule and steps.

    python benchmarks/in_your_trainer.py             # prints the tables of docs/compatibility.md
    python benchmarks/in_your_trainer.py --small     # two epochs, one seed: only that it runs

Each host trains the same network on scikit-learn's digits, for 160 steps of SGD of two batches of 32 images, with a
cosine schedule, in bfloat16 mixed precision, and validates after every epoch; seeds 0, 1 and 2. The lines that a user
adds to the host's own loop are marked ``# +``. A host agrees with cl.fit if the difference of their mean errors is at
most two standard deviations between seeds, pooled over all hosts. Network, learning rate, seeds and rule were settled
before the first run.
"""

import argparse
import contextlib
import importlib.metadata
import inspect
import logging
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import clearance as cl

TRAIN, TEST = cl.load_dataset("digits"), cl.load_dataset("digits", split="test")
EPOCHS, BATCH, ACCUMULATED, SEEDS = 8, 32, 2, (0, 1, 2)
STEPS_PER_EPOCH = len(TRAIN) // BATCH // ACCUMULATED


@dataclass(frozen=True)
class Task:
    """One objective, seed and length."""

    name: str
    seed: int
    epochs: int

    @property
    def steps(self) -> int:
        """Steps of the optimiser."""
        return self.epochs * STEPS_PER_EPOCH

    def model(self) -> cl.Classifier:
        """The same first weights for every host."""
        torch.manual_seed(self.seed)
        layers = [nn.Flatten(), nn.Linear(64, 128), nn.ReLU()]
        if self.name == "L-GM":
            layers.append(nn.Linear(128, 16))
            head: nn.Module = cl.heads.GaussianMixture(16, 10)
        else:
            head = nn.Linear(128, 10)
        return cl.Classifier(nn.Sequential(*layers), head, mean=0.3, std=0.4)

    def objective(self) -> Any:
        """A loss, or FOCA."""
        made: dict[str, Callable[[], Any]] = {
            "margins": lambda: cl.losses.LargeMarginLoss(("input", "extractor.1")),
            "L-GM": lambda: cl.losses.GaussianMixtureLoss(alpha=0.1, likelihood_weight=0.1),
            "FOCA": cl.training.FOCA,
        }
        return made[self.name]()

    def loader(self) -> DataLoader:
        """Batches in an order by the seed."""
        order = torch.Generator().manual_seed(self.seed)
        data = TensorDataset(TRAIN.images, TRAIN.labels)
        return DataLoader(data, BATCH, shuffle=True, drop_last=True, generator=order)


SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


@torch.no_grad()
def error(model: Any) -> float:
    """The share of test images that are classified wrongly."""
    return float((model.eval()(TEST.images).argmax(dim=1) != TEST.labels).double().mean())


def validated(model: Any, loss: Any) -> None:
    """The loss on the test images, as a validation computes it."""
    model.eval(), loss.eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        value = loss(model(TEST.images, layers=loss.layers), TEST.labels).total
    if not bool(value.isfinite()):
        raise ValueError("the loss of a validation is not finite")
    model.train(), loss.train()


def with_fit(task: Task) -> Any:
    """cl.fit, with both batches of a step as one."""
    objective = task.objective()
    way = objective if task.name == "FOCA" else cl.training.EndToEnd(objective)
    execution = cl.training.Execution(autocast=torch.bfloat16)
    schedule = partial(CosineAnnealingLR, T_max=task.steps)
    return cl.fit(
        task.model(), way, TRAIN, steps=task.steps, batch_size=BATCH * ACCUMULATED, optimizer=SGD, schedule=schedule,
        execution=execution, validation=TEST, seed=task.seed,
    ).model  # fmt: skip


def with_plain_loop(task: Task) -> Any:
    """A loop by hand, with a loss."""
    model = task.model()
    loss = task.objective()  # +
    optimizer = SGD(model.parameters())
    schedule = CosineAnnealingLR(optimizer, task.steps)
    for _ in range(task.epochs):
        for place, (images, labels) in enumerate(task.loader()):
            with torch.autocast("cpu", torch.bfloat16):
                outputs = model(images, layers=loss.layers)  # +
                total = loss(outputs, labels).total  # +
            (total / ACCUMULATED).backward()
            if place % ACCUMULATED:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                loss.after_step(outputs.detached(), labels)  # +
        validated(model, loss)
    return model


def with_plain_loop_foca(task: Task) -> Any:
    """A loop by hand, with FOCA."""
    model = task.model()
    foca = task.objective()  # +
    session = foca.start(model, TRAIN)  # +
    optimizer = SGD(foca.trainable(model))  # +
    schedule = CosineAnnealingLR(optimizer, task.steps)
    for _ in range(task.epochs):
        for place, (images, labels) in enumerate(task.loader()):
            with torch.autocast("cpu", torch.bfloat16):
                total = session.loss(images, labels).total  # +
            (total / ACCUMULATED).backward()
            if place % ACCUMULATED:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                session.after_step()  # +
        validated(model, foca.loss)
    session.finish()  # +
    return model


def with_accelerate(task: Task) -> Any:
    """A loop by hand with accelerate, and a loss."""
    from accelerate import Accelerator

    model = task.model()
    loss = task.objective()  # +
    optimizer = SGD(model.parameters())
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=ACCUMULATED)
    prepared, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, task.loader(), CosineAnnealingLR(optimizer, task.steps)
    )
    for _ in range(task.epochs):
        for images, labels in loader:
            with accelerator.accumulate(prepared):
                outputs = prepared(images, layers=loss.layers)  # +
                accelerator.backward(loss(outputs, labels).total)  # +
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:  # +
                    loss.after_step(outputs.detached(), labels)  # +
        validated(model, loss)
    return accelerator.unwrap_model(prepared)


def with_accelerate_foca(task: Task) -> Any:
    """A loop by hand with accelerate, and FOCA."""
    from accelerate import Accelerator

    model = task.model()
    foca = task.objective()  # +
    optimizer = SGD(foca.trainable(model))  # +
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=ACCUMULATED)
    prepared, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, task.loader(), CosineAnnealingLR(optimizer, task.steps)
    )
    session = foca.start(model, TRAIN)  # +
    for _ in range(task.epochs):
        for images, labels in loader:
            with accelerator.accumulate(prepared):
                accelerator.backward(session.loss(images, labels, prepared).total)  # +
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:  # +
                    session.after_step()  # +
        validated(model, foca.loss)
    session.finish()  # +
    return accelerator.unwrap_model(prepared)


def with_lightning(task: Task) -> Any:
    """Lightning's Trainer."""
    import lightning.pytorch as lightning

    from clearance.integrations.lightning import TrainsClassifier  # +

    class Net(TrainsClassifier, lightning.LightningModule):  # +
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model()
            self.objective = task.objective()  # +
            self.images = TRAIN  # +

        def configure_optimizers(self) -> Any:
            moved = [one for one in self.parameters() if one.requires_grad]
            optimizer = SGD(moved)
            schedule = {"scheduler": CosineAnnealingLR(optimizer, task.steps), "interval": "step"}
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    net = Net()
    trainer = lightning.Trainer(
        max_epochs=task.epochs, precision="bf16-mixed", accumulate_grad_batches=ACCUMULATED, accelerator="cpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(net, task.loader(), DataLoader(TensorDataset(TEST.images, TEST.labels), 256))
    check_steps(trainer.global_step, task)
    return net.model


def with_trainer(task: Task) -> Any:
    """Hugging Face's Trainer."""
    import transformers

    from clearance.integrations.transformers import TrainsClassifier  # +

    class ClassifierTrainer(TrainsClassifier, transformers.Trainer):  # +
        pass  # +

    model = task.model()
    optimizer = SGD(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, num_train_epochs=task.epochs, per_device_train_batch_size=BATCH, dataloader_drop_last=True,
            gradient_accumulation_steps=ACCUMULATED, bf16=True, eval_strategy="epoch", use_cpu=True, seed=task.seed,
            data_seed=task.seed, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
            max_grad_norm=0.0,
        )  # fmt: skip
        trainer: Any = ClassifierTrainer(
            model, arguments, train_dataset=items(TRAIN), eval_dataset=items(TEST),
            optimizers=(optimizer, CosineAnnealingLR(optimizer, task.steps)),
            objective=task.objective(), images=TRAIN,  # +
        )  # fmt: skip
        trainer.train()
    check_steps(trainer.state.global_step, task)
    return model


def items(data: cl.ImageSet) -> list[dict[str, Any]]:
    """Images in [0, 1] with labels, one by one."""
    return [{"images": x, "labels": int(y)} for x, y in zip(data.images, data.labels, strict=True)]


def with_skorch(task: Task) -> Any:
    """skorch, with a loss; mixed precision and accumulation as its documentation adds them."""
    model = task.model()
    loss = task.objective()  # +
    accumulating: Any = accumulating_net(task)

    class Net(accumulating):
        def infer(self, x: Tensor, **_: Any) -> Tensor:  # +
            with torch.autocast("cpu", torch.bfloat16):
                self.seen = self.module_(x, layers=loss.layers)  # +
                return self.seen.logits.float()  # +

        def get_loss(self, _: Tensor, y_true: Tensor, **__: Any) -> Tensor:  # +
            return loss(self.seen, y_true).total  # +

        def after_step(self, labels: Tensor) -> None:
            loss.after_step(self.seen.detached(), labels)  # +

    Net(model).fit(TRAIN.images, TRAIN.labels)
    return model


def with_skorch_foca(task: Task) -> Any:
    """skorch, with FOCA."""
    model = task.model()
    foca = task.objective()  # +
    session = foca.start(model, TRAIN)  # +

    accumulating: Any = accumulating_net(task)

    class Net(accumulating):
        def get_loss(self, y_pred: Tensor, y_true: Tensor, X: Any = None, training: bool = False) -> Tensor:
            if training:  # +
                return session.loss(X, y_true).total  # +
            return super().get_loss(y_pred, y_true, X, training)

        def after_step(self, _: Tensor) -> None:
            session.after_step()  # +

    Net(model).fit(TRAIN.images, TRAIN.labels)
    session.finish()  # +
    return model


def accumulating_net(task: Task) -> Any:
    """A NeuralNetClassifier that steps after every second batch, in bfloat16."""
    from skorch import NeuralNetClassifier
    from skorch.dataset import Dataset
    from skorch.helper import predefined_split

    class Accumulating(NeuralNetClassifier):
        def __init__(self, module: Any, **named: Any) -> None:
            settings = {
                "criterion": nn.CrossEntropyLoss, "optimizer": SGD.func, "lr": SGD.keywords["lr"],
                "optimizer__momentum": SGD.keywords["momentum"], "max_epochs": task.epochs, "batch_size": BATCH,
                "iterator_train__shuffle": True, "iterator_train__drop_last": True, "verbose": 0,
                "train_split": predefined_split(Dataset(TEST.images, TEST.labels)),
                "classes": list(range(10)),
            }  # fmt: skip
            torch.manual_seed(task.seed)
            super().__init__(module, **(settings | named))

        def train_step(self, batch: Any, **named: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                step = self.train_step_single(batch, **named)
            if len(self.history[-1, "batches"]) % ACCUMULATED == 0:
                for parameter in self.module_.parameters():
                    if parameter.grad is not None:
                        parameter.grad /= ACCUMULATED
                self.optimizer_.step()
                self.schedule.step()
                self.optimizer_.zero_grad()
                self.after_step(batch[1])
            return step

        def initialize_optimizer(self, *given: Any, **named: Any) -> Any:
            super().initialize_optimizer(*given, **named)
            self.schedule = CosineAnnealingLR(self.optimizer_, task.steps)
            return self

        def after_step(self, labels: Tensor) -> None:
            """Follows each step of the optimiser."""

    return Accumulating


Host = Callable[[Task], Any]
HOSTS: dict[str, tuple[str, Host, Host]] = {
    "a plain loop": ("torch", with_plain_loop, with_plain_loop_foca),
    "accelerate": ("accelerate", with_accelerate, with_accelerate_foca),
    "Lightning": ("lightning", with_lightning, with_lightning),
    "Hugging Face's Trainer": ("transformers", with_trainer, with_trainer),
    "skorch": ("skorch", with_skorch, with_skorch_foca),
}
OBJECTIVES = ("margins", "L-GM", "FOCA")


def check_steps(made: int, task: Task) -> None:
    """Raise unless the host has made the steps that were asked for."""
    if made != task.steps:
        raise ValueError(f"the host must make {task.steps} steps; it made {made}")


def lines_added(host: Host) -> int:
    """Lines of its source that end in ``# +``."""
    return sum(line.rstrip().endswith("# +") for line in inspect.getsource(host).splitlines())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what other packages print and warn of."""
    for name in ("lightning", "lightning.pytorch", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=cl.losses.TrainingWarning)
        yield


def measured(host: Host, name: str, seeds: tuple[int, ...], epochs: int) -> tuple[list[float], float]:
    """Test errors, and seconds of one run."""
    began = time.perf_counter()
    with quiet():
        errors = [error(host(Task(name, seed, epochs))) for seed in seeds]
    return errors, (time.perf_counter() - began) / len(seeds)


def pooled(groups: list[list[float]]) -> float:
    """Standard deviation within groups."""
    return math.sqrt(
        statistics.mean(statistics.variance(group) if len(group) > 1 else 0.0 for group in groups)
    )


def table(seeds: tuple[int, ...], epochs: int) -> Iterator[str]:
    """Rows of the table of trainers, as Markdown."""
    errors: dict[str, dict[str, list[float]]] = {name: {} for name in OBJECTIVES}
    lines: dict[str, dict[str, int]] = {name: {} for name in OBJECTIVES}
    for name in OBJECTIVES:
        errors[name]["cl.fit"], _ = measured(with_fit, name, seeds, epochs)
        for title, (_, host, foca) in HOSTS.items():
            called = foca if name == "FOCA" else host
            errors[name][title], took = measured(called, name, seeds, epochs)
            lines[name][title] = lines_added(called)
            print(f"{name}, {title}: {errors[name][title]}, {took:.1f} s a run", file=sys.stderr)
    heads = " | ".join(f"{name}: test error" for name in OBJECTIVES)
    yield f"| trainer | version | lines added | {heads} | agrees with `cl.fit` |"
    yield "|---" * (4 + len(OBJECTIVES)) + "|"
    yield f"| `cl.fit` | | | {' | '.join(shown(errors[name]['cl.fit']) for name in OBJECTIVES)} | |"
    spreads = {name: pooled(list(errors[name].values())) for name in OBJECTIVES}
    for title, (package, *_) in HOSTS.items():
        away = [
            name
            for name in OBJECTIVES
            if abs(statistics.mean(errors[name][title]) - statistics.mean(errors[name]["cl.fit"]))
            > 2 * spreads[name]
        ]
        counts = sorted({lines[name][title] for name in OBJECTIVES})
        verdict = f"not with {', '.join(away)}" if away else "yes"
        yield (
            f"| {title} | {package} {importlib.metadata.version(package)} | {' to '.join(map(str, counts))} | "
            f"{' | '.join(shown(errors[name][title]) for name in OBJECTIVES)} | {verdict} |"
        )


def shown(errors: list[float]) -> str:
    """Mean and standard deviation in percent."""
    spread = f" (sd {100 * statistics.stdev(errors):.1f})" if len(errors) > 1 else ""
    return f"{100 * statistics.mean(errors):.1f} %{spread}"


def main() -> None:
    """Print the table."""
    from compatibility import declare_missing_operators

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    declare_missing_operators()  # Lightning and transformers import torchvision where there is one
    for line in table((0,) if small else SEEDS, 2 if small else EPOCHS):
        print(line)


if __name__ == "__main__":
    main()
