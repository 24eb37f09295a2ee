"""``clearance audit``: audit a saved run, or a model that was trained elsewhere."""

import dataclasses
import os
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from clearance.cli._options import OptionalCount, OptionalNumber, OptionalPath, OptionalText, split_names

if TYPE_CHECKING:
    from rich.console import Console

    from clearance.experiments.outside import OutsideModel
    from clearance.report import Card

FORM = "AUDIT.SETTING=VALUE, semicolons between them and commas within, such as robustness.epsilons.inf=2/255,8/255"
BY_NAME = "Mapping[str, "  # in the declared type of a setting that has values by name


def audit_settings(text: str | None) -> dict[str, dict[str, Any]]:
    """By audit and setting; where an audit takes several values there is a list, also of one and of ``none``.

    A setting with values by name, such as radii by norm, is written with that name, AUDIT.SETTING.NAME=VALUE.

    Args:
        text: For example ``"robustness.epsilons.inf=2/255,8/255; minimal_perturbation.steps=20"``.

    Raises:
        ValueError: If a part has another form, there is no such audit or setting, or one is given twice.

    >>> audit_settings("robustness.images=500; likelihood.other=photographs")
    {'robustness': {'images': 500}, 'likelihood': {'other': 'photographs'}}
    >>> audit_settings("robustness.epsilons.inf=0.25; robustness.epsilons.2=0.5,1")
    {'robustness': {'epsilons': {'inf': [0.25], '2': [0.5, 1]}}}
    >>> audit_settings("boundary_distance.norms=inf,2")
    {'boundary_distance': {'norms': ['inf', '2']}}
    """
    found: dict[str, dict[str, Any]] = {}
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        place, equals, value = (word.strip() for word in part.partition("="))
        audit, dot, path = place.partition(".")
        if not (equals and dot and value):
            raise ValueError(f"--settings takes {FORM}; got {part.strip()!r}.")
        setting, _, name = path.partition(".")
        kind = _type_of(audit, setting)
        if bool(name) != (BY_NAME in kind):
            raise ValueError(f"--settings takes {FORM}; got {part.strip()!r}.")
        settings, key = found.setdefault(audit, {}), setting
        if name:
            settings, key, kind = settings.setdefault(setting, {}), name, kind.rpartition(BY_NAME)[2]
        if key in settings:
            raise ValueError(f"--settings must have each setting once; got {place} twice.")
        values = [] if "tuple[" in kind and value.lower() == "none" else value.split(",")
        values = [word.strip() if "str" in kind else _value(word.strip()) for word in values]
        settings[key] = values if len(values) > 1 or "tuple[" in kind else values[0]
    return found


def _type_of(audit: str, setting: str) -> str:
    """What a setting may be, as its audit declares it: words stay words there, and one value is a list of one."""
    from clearance._checks import check_choice
    from clearance.experiments.catalogue import AUDITS, resolve

    fields = {field.name: field for field in dataclasses.fields(resolve("audit", audit, AUDITS))}
    check_choice(f"setting of audit {audit!r}", setting, list(fields))
    return str(fields[setting].type)


def _value(word: str) -> Any:
    """A whole number, a number, a fraction of two whole numbers, true, false, none, or the word itself."""
    named: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if word.lower() in named:
        return named[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    try:
        return float(Fraction(word))
    except (ValueError, ZeroDivisionError):
        return word


def open_page(page: Path) -> bool:
    """Open a page in the browser; whether that was possible.

    Without a desktop nothing is opened, because a browser that lives in the terminal would take it over.

    Args:
        page: An HTML file.
    """
    desktop = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return desktop and webbrowser.open(page.resolve().as_uri())


DEMO = "demo"
INTERRUPTED = 130


@dataclass(frozen=True)
class AuditCommand:
    """Audit a model and write one page: of a saved run, or any PyTorch classifier.

    Of a saved run: `clearance audit RUN_DIR`. Of any other model: `clearance audit MODULE:NAME --weights best.pt
    --train folder:train --test folder:val`, where MODULE:NAME (or path/to/file.py:NAME) is an nn.Module, or a class
    or function that gives one without arguments, imported from the working directory. To see what comes of it:
    `clearance audit demo`, in a quarter of a minute. Ctrl-C keeps the audits that are done.

    Args:
        model: The directory of a run that `clearance train` or `clearance compare` left, MODULE:NAME, or demo.
        weights: A checkpoint (.safetensors, .pt, .pth, .ckpt); nothing is unpickled.
        weights_entry: The entry of the checkpoint to take (default: averaged weights, else state_dict or model).
        train: The images that the model was trained on: folder:PATH, npz:PATH or the name of a dataset (see --root).
        test: Held-out images of the same classes: folder:PATH, npz:PATH or the name of a dataset.
        unknown: Images of things it never saw: folder:PATH (flat, no labels), npz:PATH or the name of a dataset.
        image_size: Side of the square that the model takes, in pixels (default: what the model says, else as they are).
        crop: The share of the short side that is kept, for example 0.875 (default: what the model says, else 1).
        mean: Subtracted from images in [0, 1], if the model does not do it: one number, or one a channel, with commas.
        std: Divides them after that, likewise.
        head: Name of the submodule that is the head (default: the last linear layer).
        expect_accuracy: What its owner says, for example 0.915: less than that stops before any other number.
        device: auto, cpu, cuda or mps.
        cache: Folder for decoded pictures and features (default: CLEARANCE_CACHE, or the user's cache folder).
        root: The folder that holds the files of a run's dataset, if it has moved, or of those that are given by name.
        audits: Names separated by commas, or all (default: those of the run; else what the first screen needs).
        settings: Of those audits, such as "robustness.epsilons.inf=2/255,8/255" (default: the run's, or each
            audit's own).
        images: Test images that attacks look at, at most, equally many of each class (default: as each audit says).
        budget: A time such as 90s, 5m or 2h after which no audit starts; the page names those that were left out.
        include_images: Show the images themselves where an audit has pictures of them.
        seed: Decides partial sets and first weights of fresh heads (default: the seed of the run, else 0).
        out: Where the page and its records are written.
        open: Open the page in a browser, as the demonstration does in a terminal of a desktop.
        quiet: Print nothing but errors.
        json: Print report.json, and what is done to the error stream.
    """

    model: Annotated[str, tyro.conf.Positional]
    weights: OptionalPath = None
    weights_entry: OptionalText = None
    train: OptionalText = None
    test: OptionalText = None
    unknown: OptionalText = None
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
    settings: OptionalText = None
    images: OptionalCount = None
    budget: OptionalText = None
    include_images: bool = False
    seed: OptionalCount = None
    out: Path = Path("clearance-audit")
    open: bool = False
    quiet: bool = False
    json: bool = False

    def run(self) -> None:
        """Audit, write, and say what was found."""
        from rich.console import Console

        from clearance._files import check_folder
        from clearance.cli._tables import print_sentences
        from clearance.report.left_out import interrupted, left_out_lines

        check_folder("out", self.out)
        console = Console(stderr=self.json, quiet=self.quiet)
        card = self._card(console)
        page = card.save_folder(self.out)
        if self.json:
            sys.stdout.write(card.to_json())
        else:
            print_sentences(console, card)
        for line in left_out_lines(card.report.recipe):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        if not self.json:
            console.print(f"Report: {page}", highlight=False, soft_wrap=True)
        if self.open or (self._is_demo() and not (self.quiet or self.json) and sys.stdout.isatty()):
            open_page(page)
        if interrupted(card.report.recipe):
            raise SystemExit(INTERRUPTED)

    def _card(self, console: "Console") -> "Card":
        if self._is_demo():
            return self._demo(console)
        return self._of_a_run(console) if self._is_run() else self._from_elsewhere(console)

    def _is_demo(self) -> bool:
        return self.model == DEMO and not Path(DEMO).exists()

    def _demo(self, console: "Console") -> "Card":
        from clearance.experiments.demo import demo

        refuse(self, (*OF_MODELS, *OF_AUDITS), "the demonstration, which has a model and images of its own")
        if self.device != "auto" or self.include_images:
            raise ValueError(
                "--device and --include-images are for a model of your own; the demonstration runs on the CPU, and "
                "shows what it has."
            )
        with console.status("training") as status:
            return demo(on_audit=lambda name: status.update(f"auditing: {name}"))

    def _is_run(self) -> bool:
        """Whether the model is a run's directory; what is neither that nor a place is said to be no directory."""
        return Path(self.model).exists() or ":" not in self.model

    def _of_a_run(self, console: "Console") -> "Card":
        from clearance.experiments.audit import audit_run

        refuse(self, OF_MODELS, "a run's directory, with weights and images of its own")
        with self._progress(console) as on_audit:
            return audit_run(
                self.model,
                split_names(self.audits) or None,
                lambda name, more: command(self, name, more),
                seed=self.seed,
                unknown=self.unknown,
                root=self.root,
                cache=self.cache,
                settings=audit_settings(self.settings),
                images=self.images,
                on_audit=on_audit,
                **self._bounds(),
            )

    def _from_elsewhere(self, console: "Console") -> "Card":
        from clearance.experiments.outside import audit_outside

        outside, bounds = self._outside(), self._bounds()

        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

        with self._progress(console) as on_audit:
            return audit_outside(
                outside,
                split_names(self.audits) or None,
                self.seed or 0,
                lambda more: command(self, outside.name, more),
                say,
                settings=audit_settings(self.settings),
                images=self.images,
                on_audit=on_audit,
                **bounds,
            )

    def _bounds(self) -> dict[str, Any]:
        from clearance.experiments.auditing import Budget, seconds_of

        budget = None if self.budget is None else Budget(seconds_of(self.budget))
        return {"budget": budget, "keep": True, "include_images": self.include_images}

    @contextmanager
    def _progress(self, console: "Console") -> Iterator[Callable[[str], object]]:
        with console.status("reading") as status:
            yield lambda name: status.update(f"auditing: {name}")

    def _outside(self) -> "OutsideModel":
        from clearance.experiments.outside import OutsideModel

        if self.train is None or self.test is None:
            raise ValueError(
                "a model given as MODULE:NAME needs images: --train and --test, each folder:PATH, npz:PATH or the name "
                "of a dataset."
            )
        if self.root is not None and all(
            ":" in given for given in (self.train, self.test, self.unknown or ":")
        ):
            raise ValueError(
                "--root is for datasets given by name; got folders or files alone in --train, --test and --unknown."
            )
        return OutsideModel(
            self.model,
            self.train,
            self.test,
            weights=self.weights,
            entry=self.weights_entry,
            head=self.head,
            mean=numbers("--mean", self.mean),
            std=numbers("--std", self.std),
            image_size=self.image_size,
            crop=self.crop,
            expect_accuracy=self.expect_accuracy,
            unknown=self.unknown,
            root=self.root,
            device=self.device,
            cache=self.cache,
        )


_OF_INPUT = ("image_size", "crop", "mean", "std", "head", "expect_accuracy")
OF_MODELS = ("weights", "weights_entry", "train", "test", *_OF_INPUT)
OF_AUDITS = ("unknown", "images", "budget", "audits", "settings", "cache", "root", "seed")
_IMAGES = ("train", "test", "unknown")
_PLAIN = ("weights_entry", *_OF_INPUT, "images", "seed")


def command(options: "AuditCommand", model: str, more: Sequence[str] | None = None) -> str:
    """The command line, without the folders of this machine.

    Args:
        options: What was given.
        model: What the report calls the model.
        more: Audits to do in place of those that were asked for, then without a budget and into another folder; None
            repeats the command.
    """
    from clearance.experiments.provenance import without_owner

    words = ["clearance", "audit", model]
    for name in _IMAGES:
        given = getattr(options, name)
        if given is not None:
            kind, colon, path = given.partition(":")
            words += [f"--{name}", f"{kind}:{without_owner(Path(path).name)}" if colon else kind]
    if options.weights is not None:
        words += ["--weights", options.weights.name]
    for name in _PLAIN:
        if getattr(options, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if told := [
        part for part in _settings(options.settings) if more is None or part.partition(".")[0] in more
    ]:
        words += ["--settings", "; ".join(told)]
    if options.include_images:
        words.append("--include-images")
    if more is not None:
        return shlex.join([*words, "--audits", ",".join(more), "--out", f"{options.out.name}-more"])
    words += [] if options.audits is None else ["--audits", options.audits]
    words += [] if options.budget is None else ["--budget", options.budget]
    return shlex.join(words)


def _settings(text: str | None) -> list[str]:
    """The parts of ``--settings``, images by the names of their folders alone."""
    from clearance.experiments.provenance import without_owner

    parts = [part.strip().partition("=") for part in (text or "").split(";") if part.strip()]
    return [
        f"{place}={value.partition(':')[0]}:{without_owner(Path(value).name)}"
        if ":" in value
        else f"{place}={value}"
        for place, _, value in parts
    ]


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas.

    Raises:
        ValueError: If one is none.

    >>> numbers("--mean", "0.5, 0.4")
    (0.5, 0.4)
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} takes numbers separated by commas; got {text!r}.") from None


def refuse(options: "AuditCommand", names: Sequence[str], taken_as: str) -> None:
    """Options that this kind of model has no use for.

    Args:
        options: What was given.
        names: Of fields that must be None.
        taken_as: What the model was taken for, in words.

    Raises:
        ValueError: If one was given.
    """
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]
    if not given:
        return
    if Path(options.model).suffix == ".py" and Path(options.model).is_file():
        raise ValueError(
            f"a model must be given as MODULE:NAME, what builds the network; got the file {options.model!r}. Name what "
            f"builds it in there: clearance audit {options.model}:NAME ..."
        )
    if Path(options.model).is_file():
        raise ValueError(
            f"a model must be given as MODULE:NAME, what builds the network; got the file {options.model!r}. If it "
            f"holds weights: clearance audit MODULE:NAME --weights {options.model} ..."
        )
    verb = "is" if len(given) == 1 else "are"
    raise ValueError(
        f"{', '.join(given)} {verb} for a model given as MODULE:NAME; got {options.model!r}, taken as {taken_as}."
    )
