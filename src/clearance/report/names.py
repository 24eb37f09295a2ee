"""What methods, datasets, heads, norms, scores and settings are called in a sentence for all readers."""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

from clearance.report.numbers import exact

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
    "dropout": "As plain training, with wider last layers, a random part of which is switched off at each step.",
    "batchnorm": "As plain training, with every layer's activations normalised batch by batch.",
    "noisy": "As plain training, with random noise added to the last layers at every step.",
    "hinge": "As plain training, but the logit of the right class only has to exceed the others by a fixed amount.",
    "large-margin": (
        "As plain training, and every image should lie some distance from the decision boundary, at the input and "
        "inside the network."
    ),
    "softmax": "The whole network is trained at once, as usual.",
    "gm": "Each class is one round cloud in the network's last layer.",
    "lgm": "Each class is one round cloud in the network's last layer; every image should lie well inside its own.",
    "center": "As plain training, and every image is pulled towards its class's average in the network's last layer.",
    "l-softmax": "As plain training, but the right class has to lead the others by an angle.",
    "contrastive": "As plain training, and pairs of one class are pulled together, pairs of two pushed apart.",
    "triplet": "As plain training, and every image should lie nearer to one of its own class than to one of another.",
    "foca": (
        "The network never sees the same last layers for long: they are discarded again and again and retrained on "
        "a few images, so it cannot adapt to one set."
    ),
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
    """The name of a method in running text; a user's own name is unchanged.

    >>> method_name("plain"), method_name("mine")
    ('plain training', 'mine')
    """
    return METHODS.get(method, method)


def model_name(method: str) -> str:
    """The name of a model in a headline: of one given as MODULE:NAME the second part.

    >>> model_name("net.py:SmallResNet"), model_name("plain"), model_name("site: A")
    ('SmallResNet', 'plain training', 'site: A')
    """
    name = method.rpartition(":")[2]
    return name if name != method and name.isidentifier() else method_name(method)


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


PAPER = "Sato et al. (2019)"


def cited(what: str) -> str:
    """Where a reader of the paper has seen this before.

    >>> cited("Fig. 3")
    'Compare Fig. 3 of Sato et al. (2019).'
    """
    return f"Compare {what} of {PAPER}."


NORMS = {
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


def in_usual_order(found: Iterable[object], usual: Iterable[str]) -> list[str]:
    """Names, each once, in the usual order; unknown ones last.

    >>> in_usual_order(["2", "mine", "inf", "2"], NORMS)
    ['inf', '2', 'mine']
    """
    names = dict.fromkeys(str(name) for name in found)
    known = [name for name in usual if name in names]
    return [*known, *(name for name in names if name not in known)]


SCORES: Mapping[str, str] = {
    "likelihood": "its own likelihood",
    "density": "density of all classes",
    "class mean": "distance to the class average",
    "learned centre": "distance to the learned centre",
    "mahalanobis": "Mahalanobis distance",
    "max softmax": "largest probability",
    "energy": "energy",
    "neighbours": "nearest features",
    "small pixels": "dim pixels, no network",
    "pixel steps": "roughness, no network",
}


def score_name(score: str) -> str:
    """A score in plain words.

    >>> score_name("neighbours"), score_name("mine")
    ('nearest features', 'mine')
    """
    return SCORES.get(score, score)


SETTINGS: Mapping[tuple[str, str], str] = {
    ("split", "test"): "test images",
    ("split", "train"): "training images",
    ("metric", "empirical"): "as the paper measures",
    ("metric", "model"): "by changed predictions, without labels",
    ("metric", "euclidean"): "plain distance of weights",
    ("layer", "all"): "all layers together",
    ("features", "rms"): "features brought to one scale",
    ("features", "raw"): "features as they are",
    ("temperature", "as trained"): "last layers as trained",
    ("temperature", "calibrated"): "after calibration",
    ("chosen_on", "test"): "threshold chosen on test images",
    ("chosen_on", "train"): "threshold chosen on training images",
    ("class", "mean"): "mean over classes",
    ("class", "all"): "all classes together",
    ("differ_in", "first weights"): "other first weights",
    ("differ_in", "images"): "other images",
    ("chosen_on", "validation"): "chosen on validation images",
    ("layer", "input"): "at the input",
    ("layer", "features"): "at the features",
    ("layer", "logits"): "at the logits",
    ("loss", "logit_margin"): "of the gap between logits",
    ("loss", "cross_entropy"): "of cross-entropy",
    ("box", "white"): "with its own gradients",
    ("box", "black"): "made on another network",
    ("counted", "all"): "all images",
    ("counted", "successful"): "images that fooled it",
    ("negatives", "originals"): "against their originals",
    ("negatives", "noise"): "against noise of the same size",
    ("attack", "adaptive"): "adaptive attack on the score",
    ("unseen", "classes left out"): "classes left out",
    ("statistics", "refitted"): "refitted to training features",
    ("statistics", "own"): "of its own last layer",
    ("binning", "equal width"): "of equal width",
    ("binning", "equal mass"): "with the same number of images",
    **{("score", score): words for score, words in SCORES.items()},
    **{("attacked", score): f"attack on its {words.removeprefix('its ')}" for score, words in SCORES.items()},
    ("head", "own"): "its own last layer",
    ("head", "fresh linear"): "fresh single layers",
}
SETTING_NAMES = {
    "epsilon": "radius",
    "samples": "training images",
    "unseen": "images of",
    "unknown": "images of",
}


def setting(key: str, value: object) -> Markup:
    """One setting in words; a number keeps all its digits in the page, a name of the data's is set as such.

    >>> str(setting("split", "test")), str(setting("class", "7")), setting("cut", 1).striptags()
    ('test images', 'class <code>7</code>', 'cut 1')
    """
    words = SETTINGS.get((key, str(value)))
    if words is not None:
        return escape(words)
    if key == "head":
        return escape(head_name(str(value)))
    name = SETTING_NAMES.get(key, key.replace("_", " "))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Markup("{} {}").format(name, exact(value))
    return Markup("{} <code>{}</code>").format(name, value)
