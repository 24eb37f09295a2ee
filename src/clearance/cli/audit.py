"""``clearance audit``: audit a saved run, or a model that was trained elsewhere."""

import dataclasses
import json
import os
import shlex
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from clearance.cli._ending import FAILED, INTERRUPTED
from clearance.cli._options import (
    LOCAL,
    OptionalCount,
    OptionalNumber,
    OptionalPath,
    OptionalText,
    check_engine_options,
    chosen_engine,
    split_names,
)

if TYPE_CHECKING:
    from clearance.cli._console import Console
    from clearance.experiments.audit import RunFolder, Source
    from clearance.experiments.grid import Engine
    from clearance.experiments.outside import OutsideModel
    from clearance.report import Card

FORM = "AUDIT.SETTING=VALUE, semicolons between them and commas within, such as robustness.epsilons.inf=2/255,8/255"
BY_NAME = "Mapping[str, "  # in the declared type of a setting that has values by name


def audit_settings(text: str | None) -> dict[str, dict[str, Any]]:
    """Settings by audit and name; a setting that takes several values is always a list.

    A setting with values by name, such as radii by norm, is written with that name, AUDIT.SETTING.NAME=VALUE.

    Args:
        text: For example ``"robustness.epsilons.inf=2/255,8/255; minimal_perturbation.steps=20"``.

    Raises:
        ValueError: If a part has another form, an audit or setting is unknown, or one is given twice.

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
    """The declared type of an audit's setting."""
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
    """Open a page in the browser, and return whether that was possible.

    Only on a desktop: elsewhere a text browser would take over the terminal.

    Args:
        page: An HTML file.
    """
    desktop = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return desktop and webbrowser.open(page.resolve().as_uri())


DEMO = "demo"


@dataclass(frozen=True)
class AuditCommand:
    """Audit a saved run or any PyTorch classifier, and write one page.

    A saved run: `clearance audit RUN_DIR`. Any other model: `clearance audit MODULE:NAME --weights best.pt
    --train folder:train --test folder:val`, where MODULE:NAME (or path/to/file.py:NAME) is an nn.Module, or a class
    or function that returns one without arguments, imported from the working directory. A model by name:
    `hf:FOLDER` (as save_pretrained writes it), `timm:NAME` or `torchvision:NAME` with --weights, `lightning:FILE` with
    --module. A demonstration:
    `clearance audit demo`, in about 10 seconds. Ctrl-C keeps finished audits, and so does an audit that fails: the page
    names it. Status: 0 all audits have a result, 1 one failed, 2 usage, 130 interrupted.

    Args:
        model: A run directory that `clearance train` or `clearance compare` wrote, MODULE:NAME, hf:FOLDER, timm:NAME,
            torchvision:NAME, lightning:FILE, or demo.
        weights: A checkpoint (.safetensors, .pt, .pth, .ckpt), read without unpickling.
        weights_entry: The entry of the checkpoint to load (default: averaged weights, else state_dict or model).
        train: The images that the model was trained on: folder:PATH, npz:PATH or the name of a dataset (see --root). If
            the folder holds train and val (or test), or the dataset has test images, these are used without --test.
        test: Held-out images of the same classes: folder:PATH, npz:PATH or the name of a dataset. Also --val. A class
            may have no image there.
        split: A file that divides the images of --train into training and held-out ones: a CSV file with file names
            and a column "split", or numbers of images in .pt, .npz, .npy or .txt. A single list names the training
            images, or the held-out ones if the file's name says test or val. With --test, its held-out images are not
            used.
        unknown: Out-of-distribution images: folder:PATH (without labels), npz:PATH or the name of a dataset.
        size: Side of the square input in pixels (default: from the model's pretrained_cfg, else unchanged).
        crop: The share of the short side that is kept, for example 0.875 (default: from pretrained_cfg, else 1).
        interpolation: How pictures are resized: nearest, bilinear, bicubic or lanczos (default: from pretrained_cfg,
            else bilinear; Pillow's resize is bicubic).
        mean: Subtracted from images in [0, 1], if the model does not do it: one number, or one per channel.
        std: Divides them after that; in the same form.
        head: Name of the submodule that is the head (default: the last linear layer).
        black_box: Read only logits, of a model that cannot be cut (scripted, quantised, something after its head);
            MODULE:NAME may then be a function of images. The page names what could not be asked.
        module: The class of a Lightning checkpoint, MODULE:CLASS.
        expect_accuracy: The known accuracy, for example 0.915; if the measured one is clearly lower (half a point,
            and its 95 % interval too), the command stops.
        device: auto, cpu, cuda or mps.
        cache: Folder for decoded pictures and features (default: CLEARANCE_CACHE, or the user's cache folder).
        root: The folder with the files of a run's dataset, if it has moved, or of datasets given by name.
        audits: Names separated by commas, few-labels for co_adaptation and linear_probe, or all (default: those of the
            run; else accuracy, duplicates and wrong labels, input, performance, mistakes, corruptions, confidence,
            unknown images and the smallest change).
        settings: Settings of audits, such as "robustness.epsilons.inf=2/255,8/255" (default: the run's, or each
            audit's own).
        slices: A CSV file about the test images: file names in the first column, and columns such as site or camera.
        images: Attacks and similar audits use at most this many test images, the same number of each class or all of a
            small one (default: each audit's own).
        budget: A time such as 90s, 5m or 2h after which no audit starts; the page names those left out.
        include_images: Leave images of the data out of index.html; share.html, beside it, never has them.
        seed: Seed of partial sets and first weights of retrained heads (default: the seed of the run, else 0).
        out: The folder for the page and its records.
        export: A folder for what a deployed model needs: names of classes, temperature and out-of-distribution
            threshold as JSON, features of training images, and a short reader that needs torch alone. For a module with
            one logit per class.
        open: Open the page in a browser (the demonstration does so on a desktop).
        quiet: Print nothing but errors.
        json: Print report.json; progress goes to the error stream.
        engine: Where attacks, searches and features are computed: local, ray (the Ray of RAY_ADDRESS or of this
            machine, else a new one on its cores) or ray://HOST:PORT. The numbers are the same everywhere.
        jobs: Local processes that share these, each with one thread (default: none but this one).
        cpus_per_run: Cores that Ray keeps for each part.
        gpus_per_run: GPUs that Ray keeps for each part.
    """

    model: Annotated[str, tyro.conf.Positional]
    weights: OptionalPath = None
    weights_entry: OptionalText = None
    train: OptionalText = None
    test: Annotated[OptionalText, tyro.conf.arg(aliases=["--val"])] = None
    split: OptionalPath = None
    unknown: OptionalText = None
    size: OptionalCount = None
    crop: OptionalNumber = None
    interpolation: OptionalText = None
    mean: OptionalText = None
    std: OptionalText = None
    head: OptionalText = None
    black_box: bool = False
    module: OptionalText = None
    expect_accuracy: OptionalNumber = None
    device: str = "auto"
    cache: OptionalPath = None
    root: OptionalText = None
    audits: OptionalText = None
    settings: OptionalText = None
    slices: OptionalPath = None
    images: OptionalCount = None
    budget: OptionalText = None
    # its help is that of --no-include-images
    include_images: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    seed: OptionalCount = None
    out: Path = Path("clearance-audit")
    export: OptionalPath = None
    open: bool = False
    quiet: bool = False
    json: bool = False
    engine: str = "local"
    jobs: OptionalCount = None
    cpus_per_run: int = 1
    gpus_per_run: float = 0.0

    def run(self) -> None:
        """Audit, write the page, and print its first screen."""
        from clearance._files import check_folder, check_report_folder
        from clearance.cli._console import Console, write_out

        check_report_folder("out", self.out)
        if self.export is not None:
            check_folder("export", self.export)
        console = Console(stderr=self.json, quiet=self.quiet)
        if self._is_demo():  # before imports that take seconds
            console.print("training and auditing a small network on the embedded digits: about 10 seconds")
        from clearance.report.left_out import has_failed, interrupted, left_out_lines, times
        from clearance.report.page import SHARED
        from clearance.report.terminal import first_text

        card = self._card(console)
        page = card.save_folder(self.out)
        if self.json:
            write_out(json.dumps(json.loads(card.to_json()), indent=1) + "\n")  # in letters of any terminal
        else:
            console.print(f"\n{first_text(card.report, console.width)}\n", soft_wrap=True)
        for line in left_out_lines(self._with_exact_command(card.report.recipe)):
            console.print(line, soft_wrap=True)
        if not self.json:
            console.print(times(card.report.recipe), soft_wrap=True)
            console.print(f"Report: {page}", soft_wrap=True)
            console.print(f"To share: {page.with_name(SHARED)} (without images of the data)", soft_wrap=True)
        if self.open or (self._is_demo() and not (self.quiet or self.json) and sys.stdout.isatty()):
            open_page(page)
        if interrupted(card.report.recipe):
            raise SystemExit(INTERRUPTED)
        if has_failed(card.report.recipe):
            raise SystemExit(FAILED)

    def _with_exact_command(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a report with the command as it was typed: the terminal may show folders of this machine."""
        from clearance.records.record import IMPOSSIBLE

        left = [one["audit"] for one in recipe.get("audits_left_out", ()) if one["why"] != IMPOSSIBLE]
        return (
            {**recipe, "audits_left_out_command": command(self, left, exact=True)} if left else dict(recipe)
        )

    def _card(self, console: "Console") -> "Card":
        from clearance.cli._console import Console
        from clearance.experiments.audit import AuditRequest, run_audit
        from clearance.experiments.audit_progress import shown
        from clearance.experiments.engines import one_thread

        audits = None if self.audits is None else split_names(self.audits, "--audits")
        source = self._source()

        def say(line: str) -> None:
            console.print(line, soft_wrap=True)

        def warn(line: str) -> None:
            Console(stderr=True, quiet=self.quiet).print(line, soft_wrap=True)

        live = console.is_terminal
        with (
            self._engine() as engine,
            console.status("reading") as status,
            shown(status.update if live else say, live=live) as progress,
            one_thread() if self._is_demo() else nullcontext(),
        ):
            request = AuditRequest(
                audits,
                audit_settings(self.settings),
                self.images,
                self.budget,
                slices=self.slices,
                include_images=self.include_images,
                seed=self.seed,
                keep=True,
                say=say,
                warn=warn,
                export=self.export,
                progress=progress,
                engine=engine,
            )
            return run_audit(source, request, lambda audits: command(self, audits))

    def _engine(self) -> "AbstractContextManager[Engine]":
        where = (self.engine, self.jobs, self.cpus_per_run, self.gpus_per_run)
        check_engine_options(*where)
        return nullcontext() if where[:2] == (LOCAL, None) else chosen_engine(*where)

    def _source(self) -> "Source":
        if self._is_demo():
            return self._demo()
        return self._run() if self._is_run() else self._outside()

    def _is_demo(self) -> bool:
        return self.model == DEMO and not Path(DEMO).exists()

    def _demo(self) -> "Source":
        from clearance.experiments.demo import Demo

        refuse(self, (*OF_MODELS, *OF_AUDITS), "the demonstration, which has its own model and images")
        if self.device != "auto" or not self.include_images:
            raise ValueError(
                "--device and --no-include-images are for your own model; leave them out for the demonstration, which "
                "runs on the CPU and shows its images."
            )
        return Demo()

    def _is_run(self) -> bool:
        """Whether the model is a run's directory, or neither that nor MODULE:NAME, which then is an error."""
        return Path(self.model).exists() or ":" not in self.model

    def _run(self) -> "RunFolder":
        from clearance.experiments.audit import RunFolder

        refuse(self, OF_MODELS, "a run's directory, with its own weights and images")
        return RunFolder(self.model, self.unknown, self.root, self.cache, self.device)

    def _outside(self) -> "OutsideModel":
        from clearance.experiments.outside import OutsideModel

        if self.head is not None and self.black_box:
            raise ValueError(
                "--black-box reads only logits, and --head names where to cut; leave one of them out."
            )
        if self.train is None:
            raise ValueError(
                "a model given as MODULE:NAME needs images: --train and --test, each folder:PATH, npz:PATH or the name "
                "of a dataset; or --train and --split, a file that divides them."
            )
        if self.root is not None and all(
            ":" in given for given in (self.train, self.test or ":", self.unknown or ":")
        ):
            raise ValueError(
                "--root is for datasets given by name; got only folders or files in --train, --test and --unknown."
            )
        return OutsideModel(
            self.model,
            self.train,
            self.test,
            split=self.split,
            weights=self.weights,
            entry=self.weights_entry,
            head=self.head,
            black_box=self.black_box,
            module=self.module,
            mean=numbers("--mean", self.mean),
            std=numbers("--std", self.std),
            size=self.size,
            crop=self.crop,
            interpolation=self.interpolation,
            expect_accuracy=self.expect_accuracy,
            unknown=self.unknown,
            root=self.root,
            device=self.device,
            cache=self.cache,
        )


_OF_INPUT = ("size", "crop", "interpolation", "mean", "std", "head", "module", "expect_accuracy")
OF_MODELS = ("weights", "weights_entry", "train", "test", "split", *_OF_INPUT, "black_box")
OF_AUDITS = ("unknown", "slices", "images", "budget", "audits", "settings", "cache", "root", "seed")
_IMAGES = ("train", "test", "unknown")
_FILES = ("split", "slices", "weights")
_PLAIN = ("weights_entry", *_OF_INPUT, "images", "seed")
_OF_MACHINE = ("root", "cache", "device")
# The audits that read them; others refuse them.
_READERS = {"slices": ("performance",), "unknown": ("out_of_distribution", "likelihood")}


def command(options: "AuditCommand", more: Sequence[str] | None = None, *, exact: bool = False) -> str:
    """The command line, to be run from the same folder.

    Args:
        options: The given options.
        more: Audits to run instead of the given ones, without a budget and into another folder; None repeats the
            command.
        exact: Whether paths are as they were typed; else those outside of the working folder are shortened to their
            last name, so that a page shows no folder of this machine.
    """
    if options._is_demo():
        return "clearance audit demo"
    from clearance.experiments.provenance import shown_path

    def path(typed: str | Path) -> str:
        return str(typed) if exact else shown_path(str(typed))

    words = ["clearance", "audit", _with_place(options.model, path, last=True)]
    for name in (*_IMAGES, *_FILES, *_PLAIN, *(_OF_MACHINE if exact else ())):
        given = getattr(options, name)
        if given in (None, "auto") or (more is not None and set(_READERS.get(name, more)).isdisjoint(more)):
            continue
        shown = path(given) if name in _FILES else _with_place(str(given), path, last=name == "module")
        words += [f"--{name.replace('_', '-')}", shown]
    if settings := _settings(options.settings, more, path):
        words += ["--settings", settings]
    flags = {"--black-box": options.black_box, "--no-include-images": not options.include_images}
    words += [flag for flag, given in flags.items() if given]
    if more is not None:
        out = f"{path(options.out)}-more" if options.out.name else "more"
        return shlex.join([*words, "--audits", ",".join(more), "--out", out])
    words += [] if options.audits is None else ["--audits", options.audits]
    words += [] if options.budget is None else ["--budget", options.budget]
    return shlex.join(words)


def _settings(text: str | None, more: Sequence[str] | None, path: Callable[[str], str]) -> str:
    """The parts of ``--settings`` for the audits in `more`."""
    parts = [part.strip().partition("=") for part in (text or "").split(";") if part.strip()]
    return "; ".join(
        f"{place}={_with_place(value, path)}"
        for place, _, value in parts
        if more is None or place.partition(".")[0] in more
    )


def _with_place(text: str, path: Callable[[str], str], *, last: bool = False) -> str:
    """``kind:PATH`` with its path changed, or ``PATH:name`` if the path comes first."""
    kind, colon, rest = text.rpartition(":") if last and ".py:" in text else text.partition(":")
    if not colon:
        return path(text) if last else text
    return f"{path(kind)}:{rest}" if last and ".py:" in text else f"{kind}:{path(rest) if rest else rest}"


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas.

    Raises:
        ValueError: If one is not a number.

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
    """Raise for options that do not apply to this kind of model.

    Args:
        options: The given options.
        names: Fields that must be None or False.
        taken_as: What the model was taken for.

    Raises:
        ValueError: If one was given.
    """
    unset = (None, False)  # by identity: 0 is given
    given = [
        f"--{n.replace('_', '-')}" for n in names if not any(getattr(options, n) is one for one in unset)
    ]
    if not given:
        return
    if Path(options.model).suffix == ".py" and Path(options.model).is_file():
        raise ValueError(
            f"a model must be given as MODULE:NAME; got the file {options.model!r}. Name the class or function in it "
            f"that builds the network: clearance audit {options.model}:NAME ..."
        )
    if Path(options.model).is_file():
        raise ValueError(
            f"a model must be given as MODULE:NAME; got the file {options.model!r}. If it "
            f"contains weights: clearance audit MODULE:NAME --weights {options.model} ..."
        )
    verb = "is" if len(given) == 1 else "are"
    raise ValueError(
        f"{', '.join(given)} {verb} for a model given as MODULE:NAME; got {options.model!r}, taken as {taken_as}."
    )
