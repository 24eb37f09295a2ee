"""What is not there, or of fewer images: cut by a budget, interrupted, kept from the page, or still to come."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clearance.records.record import BUDGET, FAILED, IMPOSSIBLE, INTERRUPTED
from clearance.report.audits import page_of
from clearance.report.names import listed
from clearance.report.numbers import data

PARTIAL = "partial"
_NAMED = 0.03  # of the whole time: what takes less is in the rest
Recipe = Mapping[str, Any]


def left_out(recipe: Recipe) -> list[Markup]:
    r"""Sentences about audits that were asked for and not done, and the command that does them.

    In the recipe, ``audits_left_out`` names the audits, and why each was left out; ``audits_without_numbers`` those
    that found nothing to measure; ``partial`` how many seeds of how many are there, while a comparison runs.

    >>> left_out({})
    []
    >>> cut = {"audit": "linear_probe", "why": "budget"}
    >>> cut_short = {"audits_left_out": [cut], "audits_left_out_command": "again",
    ...         "budget": {"seconds": 90.0, "spent": 95.0}}
    >>> print(left_out(cut_short)[0].striptags().replace("\u202f", " "))
    Not started within the budget of 90 s: linear probe (linear_probe).
    >>> asked = {"audit": "linear_probe", "why": "impossible", "reason": "features"}
    >>> print(left_out({"audits_left_out": [asked]})[0].striptags())
    Could not be asked without features: linear probe (linear_probe).
    >>> print(left_out({"partial": {"seeds": 2, "of": 5}})[0].striptags())
    Partial: 2 of 5 seeds. The comparison writes this page again on its way, and at its end.
    """
    entries = recipe.get("audits_left_out", [])
    without = recipe.get("audits_without_numbers", [])
    possible = [entry for entry in entries if entry["why"] != IMPOSSIBLE]
    cut = [entry for entry in entries if entry["why"] == BUDGET]
    failed = [entry for entry in entries if entry["why"] == FAILED]
    stopped = [entry for entry in entries if entry["why"] == INTERRUPTED]
    found = []
    if PARTIAL in recipe:
        counts = (data(recipe[PARTIAL]["seeds"], "count"), data(recipe[PARTIAL]["of"], "count"))
        text = Markup(
            "Partial: {} of {} seeds. The comparison writes this page again on its way, and at its end."
        )
        found.append(text.format(*counts))
    if without:
        asked = Markup("; ").join(Markup("{} ({})").format(_inside(name), name) for name in without)
        found.append(
            Markup("Requested, but without a number for such a network or recipe: {}.").format(asked)
        )
    for entry in failed:
        run = Markup(", {}").format(entry["run"]) if entry.get("run") else ""
        found.append(
            Markup("<strong>Failed</strong>, so nothing is known of it: {}{}. <code>{}</code>").format(
                _named([entry]), run, entry.get("reason", "")
            )
        )
    if "export_failed" in recipe:
        text = Markup("<strong>The export failed</strong>, and the audits are here: <code>{}</code>")
        found.append(text.format(recipe["export_failed"]))
    if "black_box" in recipe:
        text = Markup("The model is a black box {}: only its logits are read, and they stand for features.")
        found.append(text.format(recipe["black_box"]))
    for lacking in dict.fromkeys(entry["reason"] for entry in entries if entry["why"] == IMPOSSIBLE):
        asked = _named([entry for entry in entries if entry.get("reason") == lacking])
        found.append(Markup("Could not be asked without {}: {}.").format(lacking, asked))
    if stopped:
        found.append(Markup("Interrupted before the end; not measured: {}.").format(_named(stopped)))
    if cut:
        seconds = recipe["budget"]["seconds"]
        limit = data(seconds, "seconds", half=10.0 if seconds < 600 else 600.0)
        found.append(Markup("Not started within the budget of {}: {}.").format(limit, _named(cut)))
    if possible:
        found.append(Markup("To measure this: <code>{}</code>").format(recipe["audits_left_out_command"]))
    return found


def left_out_lines(recipe: Recipe) -> list[str]:
    """The same for a terminal."""
    lines = [line.striptags() for line in left_out(recipe)]
    if any(entry["why"] != IMPOSSIBLE for entry in recipe.get("audits_left_out", [])):
        lines[-1] = (
            f"To measure this: {recipe['audits_left_out_command']}"  # striptags would change its spaces
        )
    return lines


def interrupted(recipe: Recipe) -> bool:
    """Whether the audit was stopped before its end."""
    return any(entry["why"] == INTERRUPTED for entry in recipe.get("audits_left_out", []))


def has_failed(recipe: Recipe) -> bool:
    """Whether an audit or the export failed."""
    return "export_failed" in recipe or any(
        entry["why"] == FAILED for entry in recipe.get("audits_left_out", [])
    )


def times(recipe: Recipe) -> str:
    """What the time went into, the longest first; empty where it was not measured.

    >>> times({"seconds": {"reading": 2.0, "accuracy": 0.2, "label_suspects": 31.0}})
    'The audit took 33 s: label suspects 31 s, reading 2 s, the rest 0 s.'
    """
    spent: dict[str, float] = dict(recipe.get("seconds", {}))
    if not spent:
        return ""
    whole = sum(spent.values())
    longest = sorted(spent.items(), key=lambda each: -each[1])
    named = {name: seconds for name, seconds in longest if seconds >= max(1.0, _NAMED * whole)}
    parts = [f"{_inside(name)} {seconds:.0f} s" for name, seconds in named.items()]
    parts += [f"the rest {whole - sum(named.values()):.0f} s"] if named else []
    return f"The audit took {whole:.0f} s" + (f": {', '.join(parts)}." if parts else ".")


def fewer_images(recipe: Recipe) -> list[Markup]:
    """A sentence about audits that used only a part of the test images; none if all audits used all.

    >>> print(fewer_images({"fewer_images": {"images": 497, "audits": {"minimal_perturbation": 100}}})[0].striptags())
    Measured on at most 100 of the 497 test images, the same number of each class or all of a small
    one: smallest change that changes the prediction.
    """
    sizes = recipe.get("fewer_images")
    if not sizes:
        return []
    by_count: dict[int, list[str]] = {}
    for audit, count in sizes["audits"].items():
        by_count.setdefault(count, []).append(audit)
    return [
        Markup(
            "Measured on at most {} of the {} test images, the same number of each class or all of a small one: {}."
        ).format(
            data(count, "count"),
            data(sizes["images"], "count"),
            listed([Markup("{}").format(_inside(name)) for name in names]),
        )
        for count, names in by_count.items()
    ]


def _named(entries: Sequence[Recipe]) -> Markup:
    return Markup("; ").join(
        Markup("{} ({})").format(_inside(entry["audit"]), entry["audit"]) for entry in entries
    )


def _inside(audit: str) -> str:
    """The title of an audit inside a sentence."""
    title = page_of(audit).title
    return title[:1].lower() + title[1:]
