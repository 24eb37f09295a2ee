"""What a setting that identifies a number is called, in words that anybody can read."""

from collections.abc import Mapping

from markupsafe import Markup, escape

from clearance.report.names import head_name
from clearance.report.numbers import exact
from clearance.report.scores import SCORES

WORDS: Mapping[tuple[str, str], str] = {
    ("split", "test"): "test images",
    ("split", "train"): "training images",
    ("metric", "empirical"): "as the paper measures",
    ("metric", "model"): "by changed answers, labels unseen",
    ("metric", "euclidean"): "plain distance of weights",
    ("layer", "all"): "all layers together",
    ("features", "rms"): "features brought to one scale",
    ("features", "raw"): "features as they are",
    ("temperature", "as trained"): "last layers as trained",
    ("temperature", "calibrated"): "sureness evened out",
    ("chosen_on", "test"): "threshold chosen on test images",
    ("chosen_on", "train"): "threshold chosen on training images",
    ("class", "mean"): "mean over classes",
    ("class", "all"): "all classes together",
    ("differ_in", "first weights"): "other first weights",
    ("differ_in", "images"): "other images",
    ("chosen_on", "validation"): "chosen on images kept back",
    ("layer", "input"): "at the input",
    ("layer", "features"): "at the features",
    ("layer", "logits"): "at the answers",
    ("loss", "logit_margin"): "of the gap between answers",
    ("loss", "cross_entropy"): "of cross-entropy",
    ("box", "white"): "with its own gradients",
    ("box", "black"): "made on another network",
    ("counted", "all"): "all images",
    ("counted", "successful"): "images that fooled it",
    ("negatives", "originals"): "against their originals",
    ("negatives", "noise"): "against noise as large",
    ("attack", "adaptive"): "attack with the score in view",
    ("unseen", "classes left out"): "classes left out",
    ("statistics", "refitted"): "refitted to training features",
    ("statistics", "own"): "of its own last layer",
    ("binning", "equal width"): "of equal width",
    ("binning", "equal mass"): "of equally many images",
    **{("score", score): words for score, words in SCORES.items()},
    **{("attacked", score): f"attack on its {words.removeprefix('its ')}" for score, words in SCORES.items()},
    ("head", "own"): "its own last layer",
    ("head", "fresh linear"): "fresh single layers",
}
KEYS = {"epsilon": "radius", "samples": "training images", "unseen": "images of", "unknown": "images of"}


def setting(key: str, value: object) -> Markup:
    """One setting in words; a number keeps all its digits in the page, a name of the data's is set as such.

    >>> str(setting("split", "test")), str(setting("class", "7")), setting("cut", 1).striptags()
    ('test images', 'class <code>7</code>', 'cut 1')
    """
    words = WORDS.get((key, str(value)))
    if words is not None:
        return escape(words)
    if key == "head":
        return escape(head_name(str(value)))
    name = KEYS.get(key, key.replace("_", " "))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Markup("{} {}").format(name, exact(value))
    return Markup("{} <code>{}</code>").format(name, value)
