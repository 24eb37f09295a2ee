"""What methods, datasets and heads are called in a sentence that anybody can read."""

from collections.abc import Sequence

from markupsafe import Markup, escape

METHODS = {"plain": "plain training", "foca": "FOCA", "batchnorm": "batch norm", "lgm": "L-GM"}
DIGITS = frozenset({"digits", "mnist"})
PIXELS = "nearest pixel"
HEADS = {
    "retrained": "a small network of last layers",
    "linear": "one linear layer",
    "class mean": "the nearest class average",
    "class mean, unit length": "the nearest class average by direction alone",
    PIXELS: "the nearest image, pixel by pixel (no network)",
}


def method_name(method: str) -> str:
    """The name of a method in running text; a user's own name stays as it is.

    >>> method_name("plain"), method_name("mine")
    ('plain training', 'mine')
    """
    return METHODS.get(method, method)


def head_name(head: str) -> str:
    """What stands in for the last layers, in plain words.

    >>> head_name("linear")
    'one linear layer'
    """
    return HEADS.get(head, head)


def class_noun(dataset: str) -> str:
    """What one class of the dataset is called.

    >>> class_noun("digits"), class_noun("cifar10")
    ('digit', 'class')
    """
    return "digit" if dataset.lower() in DIGITS else "class"


def strong(method: str) -> Markup:
    """A method's name, escaped and set off from the sentence around it.

    >>> strong("<mine>")
    Markup('<b>&lt;mine&gt;</b>')
    """
    return Markup("<b>{}</b>").format(method_name(method))


def listed(parts: Sequence[str | Markup]) -> Markup:
    """Parts of a sentence as "a, b and c".

    >>> str(listed(["a", "b", "c"]))
    'a, b and c'
    """
    safe = [escape(part) for part in parts]
    if len(safe) < 2:
        return Markup("").join(safe)
    return Markup(", ").join(safe[:-1]) + Markup(" and ") + safe[-1]
