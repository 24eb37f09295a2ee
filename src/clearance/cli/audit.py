"""``clearance audit``: audit a saved run, or a model that was trained elsewhere."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from clearance.cli._fields import OptionalCount, OptionalNumber, OptionalPath, OptionalText

if TYPE_CHECKING:
    from rich.console import Console

    from clearance.experiments.outside import OutsideModel
    from clearance.report import Card

DEMO = "demo"


@dataclass(frozen=True)
class AuditCommand:
    """Audit a model and write one page: of a saved run, or any PyTorch classifier.

    Of a saved run: `clearance audit RUN_DIR`. Of any other model: `clearance audit MODULE:NAME --weights best.pt
    --train folder:train --test folder:val`, where MODULE:NAME (or path/to/file.py:NAME) is an nn.Module, or a class
    or function that gives one without arguments, imported from the working directory. To see what comes of it:
    `clearance audit demo`, in half a minute.

    Args:
        model: The directory of a run that `clearance train` or `clearance compare` left, MODULE:NAME, or demo.
        weights: A checkpoint (.safetensors, .pt, .pth, .ckpt); nothing is unpickled.
        weights_entry: The entry of the checkpoint to take (default: averaged weights, else state_dict or model).
        train: The images that the model was trained on: folder:PATH or npz:PATH.
        test: Held-out images of the same classes: folder:PATH or npz:PATH.
        image_size: Side of the square that the model takes, in pixels (default: what the model says, else as they are).
        crop: The share of the short side that is kept, for example 0.875 (default: what the model says, else 1).
        mean: Subtracted from images in [0, 1], if the model does not do it: one number, or one a channel, with commas.
        std: Divides them after that, likewise.
        head: Name of the submodule that is the head (default: the last linear layer).
        expect_accuracy: What its owner says, for example 0.915: less than that stops before any other number.
        device: auto, cpu, cuda or mps.
        cache: Folder for decoded pictures and features (default: CLEARANCE_CACHE, or the user's cache folder).
        root: The folder that holds the files of a run's dataset, if it has moved.
        audits: Names separated by commas, or all (default: those of the run; else what the first screen needs).
        seed: Decides partial sets and first weights of fresh heads (default: the seed of the run, else 0).
        out: Where the page and its records are written.
        quiet: Print nothing but errors.
        json: Print report.json, and what is done to the error stream.
    """

    model: Annotated[str, tyro.conf.Positional]
    weights: OptionalPath = None
    weights_entry: OptionalText = None
    train: OptionalText = None
    test: OptionalText = None
    image_size: OptionalCount = None
    crop: OptionalNumber = None
    mean: OptionalText = None
    std: OptionalText = None
    head: OptionalText = None
    expect_accuracy: OptionalNumber = None
    device: str = "auto"
    cache: OptionalPath = None
    root: OptionalText = None
    audits: OptionalText = None
    seed: OptionalCount = None
    out: Path = Path("clearance-audit")
    quiet: bool = False
    json: bool = False

    def run(self) -> None:
        """Audit, write, and say what was found."""
        from rich.console import Console

        from clearance.cli._tables import print_table

        console = Console(stderr=self.json, quiet=self.quiet)
        card = self._card(console)
        page = card.save_folder(self.out)
        if self.json:
            import sys

            sys.stdout.write(card.to_json())
            return
        print_table(console, card)
        console.print(f"Report: {page}", highlight=False, soft_wrap=True)

    def _card(self, console: "Console") -> "Card":
        if self.model == DEMO and not Path(DEMO).exists():
            return self._demo(console)
        return self._of_a_run(console) if self._is_run() else self._from_elsewhere(console)

    def _demo(self, console: "Console") -> "Card":
        from clearance.experiments.demo import demo

        self._refuse_options_of_models("the demonstration, which has a model and images of its own")
        with console.status("training") as status:
            return demo(on_audit=lambda name: status.update(f"auditing: {name}"))

    def _is_run(self) -> bool:
        """Whether the model is a run's directory; what is neither that nor a place is said to be no directory."""
        return Path(self.model).exists() or ":" not in self.model

    def _of_a_run(self, console: "Console") -> "Card":
        from clearance.cli._options import split_names
        from clearance.experiments.audit import audited
        from clearance.experiments.audit_sources import named_sources
        from clearance.experiments.auditing import ready_audits
        from clearance.experiments.catalogue import named_audits
        from clearance.experiments.plan import RunPlan
        from clearance.experiments.saved import load_run

        self._refuse_options_of_models()
        folder = Path(self.model)
        run = load_run(folder)
        names = named_audits(split_names(self.audits)) or run.recipe.audits
        plan = RunPlan(replace(run.recipe, audits=names), run.method, run.seed)
        audits = ready_audits(plan, folder.resolve().parent)
        seed = run.seed if self.seed is None else self.seed
        with console.status("auditing"):
            command = f"clearance audit {folder.name}"
            data, sources = run.data(self.root), named_sources(plan.recipe)
            return audited(run.model, data, audits, seed, run.method, command, sources)

    def _refuse_options_of_models(
        self, taken_as: str = "a run's directory, with weights and images of its own"
    ) -> None:
        names = ("weights", "train", "test", "image_size", "crop", "mean", "std", "head", "expect_accuracy")
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]
        if given:
            raise ValueError(
                f"{', '.join(given)} are for a model given as MODULE:NAME; got {self.model!r}, taken as {taken_as}."
            )

    def _from_elsewhere(self, console: "Console") -> "Card":
        from clearance.cli._options import split_names
        from clearance.experiments.auditing import MODEL_AUDITS
        from clearance.experiments.catalogue import named_audits
        from clearance.experiments.outside import audit_outside

        outside = self._outside()
        names = named_audits(split_names(self.audits)) or MODEL_AUDITS

        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

        return audit_outside(outside, names, self.seed or 0, self._command(outside), say)

    def _outside(self) -> "OutsideModel":
        from clearance.experiments.outside import OutsideModel

        if self.train is None or self.test is None:
            raise ValueError(
                "a model given as MODULE:NAME needs images: --train and --test, each folder:PATH or npz:PATH."
            )
        if self.root is not None:
            raise ValueError(
                "--root is for the dataset of a run; a model given as MODULE:NAME has --train and --test."
            )
        return OutsideModel(
            self.model,
            self.train,
            self.test,
            weights=self.weights,
            entry=self.weights_entry,
            head=self.head,
            mean=_numbers("--mean", self.mean),
            std=_numbers("--std", self.std),
            image_size=self.image_size,
            crop=self.crop,
            expect_accuracy=self.expect_accuracy,
            device=self.device,
            cache=self.cache,
        )

    def _command(self, outside: "OutsideModel") -> str:
        """The command without folders of this machine."""
        words = ["clearance", "audit", outside.name]
        for name in ("train", "test"):
            kind, _, path = str(getattr(self, name)).partition(":")
            words += [f"--{name}", f"{kind}:{Path(path).name}"]
        if self.weights is not None:
            words += ["--weights", self.weights.name]
        for name in (
            "weights_entry",
            "image_size",
            "crop",
            "mean",
            "std",
            "head",
            "expect_accuracy",
            "audits",
            "seed",
        ):
            if getattr(self, name) is not None:
                words += [f"--{name.replace('_', '-')}", str(getattr(self, name))]
        return shlex.join(words)


def _numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas.

    >>> _numbers("--mean", "0.5, 0.4")
    (0.5, 0.4)
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} takes numbers separated by commas; got {text!r}.") from None
