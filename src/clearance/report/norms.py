"""What a norm bounds, in words that anybody can read."""

from collections.abc import Iterable

from markupsafe import Markup

WORDS = {
    "inf": "every pixel changed by at most the radius",
    "2": "the root of the summed squares of all changes at most the radius",
    "1": "the sum of all changes at most the radius",
}
LENGTHS = {
    "inf": "the largest change of a pixel",
    "2": "the root of the summed squares of all changes",
    "1": "the sum of all changes",
}


def norm_name(norm: str) -> Markup:
    """The norm's name, set as a name.

    >>> str(norm_name("inf"))
    'norm <code>inf</code>'
    """
    return Markup("norm <code>{}</code>").format(norm)


def norms_of(found: Iterable[object]) -> list[str]:
    """Names of norms, each once, in the usual order.

    >>> norms_of(["2", "inf", "2"])
    ['inf', '2']
    """
    names = {str(norm) for norm in found}
    return [*(norm for norm in WORDS if norm in names), *sorted(names - set(WORDS))]
