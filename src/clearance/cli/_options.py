"""What several commands read in the same way."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearance.experiments.recipe import Recipe


def chosen_recipe(
    recipe: Path | None,
    dataset: str | None,
    methods: tuple[str, ...],
    **changes: object,
) -> "Recipe":
    """The recipe of a file, or the dataset's tuned one, with the options that were given put on top.

    Raises:
        ValueError: If a method or setting is unknown.
    """
    from clearance._checks import check_choice
    from clearance.experiments.recipe import read_recipe, tuned_recipe

    start = tuned_recipe(dataset or "digits") if recipe is None else read_recipe(recipe)
    if dataset is not None:
        start = dataclasses.replace(start, dataset=dataset)
    known = {**tuned_recipe(start.dataset).methods, **start.methods}
    for name in methods:
        check_choice("method", name, known)
    if methods:
        start = dataclasses.replace(start, methods={name: known[name] for name in methods})
    given = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(start, **given)  # type: ignore[arg-type]


def split_names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas.

    >>> split_names("plain, foca")
    ('plain', 'foca')
    """
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
