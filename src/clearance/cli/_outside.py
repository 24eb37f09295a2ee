"""What `clearance audit` reads and repeats of its options."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearance.cli.audit import AuditCommand

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
    from clearance.experiments.owner import without_owner

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
    from clearance.experiments.owner import without_owner

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
