"""What methods, datasets and heads are called in a sentence that anybody can read."""

from collections.abc import Sequence

from markupsafe import Markup, escape

METHODS = {
    "plain": "plain training",
    "foca": "FOCA",
    "batchnorm": "batch norm",
    "gm": "GM",
    "lgm": "L-GM",
    "lgm-0.1": "L-GM, alpha 0.1",
    "lgm-0.2": "L-GM, alpha 0.2",
    "large-margin": "large margin",
    "center": "center loss",
    "l-softmax": "L-Softmax",
    "contrastive": "contrastive loss",
    "triplet": "triplet loss",
}
DIGITS = frozenset({"digits", "mnist"})
PIXELS, PIXEL_MEANS = "nearest pixel", "class mean, pixels"
NO_NETWORK = {PIXELS: "nearest image, no network", PIXEL_MEANS: "nearest class average of pixels, no network"}
DESCRIPTIONS = {
    "plain": "The whole network is trained at once, as usual.",
    "dropout": "As plain training, with wider last layers, a random part of them switched off at each step.",
    "batchnorm": "As plain training, with every layer's signals brought to one scale, batch by batch.",
    "noisy": "As plain training, with random noise added to the last layers at every step.",
    "hinge": "As plain training, but the right answer only has to be ahead of the others by a fixed amount.",
    "large-margin": "As plain training, and every image is to lie some distance from where the answer would change, in "
    "the image itself and inside the network.",
    "softmax": "The whole network is trained at once, as usual.",
    "gm": "Each class is one round cloud in the network's last layer.",
    "lgm": "Each class is one round cloud in the network's last layer; every image is to lie well inside its own.",
    "center": "As plain training, and every image is pulled towards its class's average in the network's last layer.",
    "l-softmax": "As plain training, but the right answer has to be ahead of the others by an angle.",
    "contrastive": "As plain training, and pairs of one class are pulled together, pairs of two pushed apart.",
    "triplet": "As plain training, and every image is to lie nearer to one of its own class than to one of another.",
    "foca": "The network never meets the same last layers for long: again and again they are thrown away "
    "and made anew from a few images, so that it cannot tune itself to any one set.",
}
HEADS = {
    "retrained": "a small network",
    "linear": "one linear layer",
    "class mean": "the nearest class average",
    "class mean, unit length": "the nearest class direction",
    "nearest neighbour": "the nearest features",
    PIXELS: "the nearest image, pixel by pixel (no network)",
    PIXEL_MEANS: "the nearest class average, pixel by pixel (no network)",
}


def method_name(method: str) -> str:
    """The name of a method in running text; a user's own name stays as it is.

    >>> method_name("plain"), method_name("mine")
    ('plain training', 'mine')
    """
    return METHODS.get(method, method)


def described(methods: Sequence[str]) -> list[tuple[str, str]]:
    """Name and one sentence for each method that has one.

    >>> [name for name, _ in described(["mine", "foca"])]
    ['FOCA']
    """
    return [(method_name(method), DESCRIPTIONS[method]) for method in methods if method in DESCRIPTIONS]


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


def listed(parts: Sequence[str | Markup], last: str = "and") -> Markup:
    """Parts of a sentence as "a, b and c".

    >>> str(listed(["a", "b", "c"], "or"))
    'a, b or c'
    """
    safe = [escape(part) for part in parts]
    if len(safe) < 2:
        return Markup("").join(safe)
    return Markup(", ").join(safe[:-1]) + Markup(" {} ").format(last) + safe[-1]
