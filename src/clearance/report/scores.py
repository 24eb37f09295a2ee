"""What the scores that may give away an image are called, and in which order they stand."""

from collections.abc import Iterable, Mapping

SCORES: Mapping[str, str] = {
    "likelihood": "its own likelihood",
    "density": "density of all classes",
    "class mean": "distance to the class average",
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


def scores_of(found: Iterable[object]) -> list[str]:
    """The scores that were measured, each once, in the order above; unknown ones last.

    >>> scores_of(["energy", "mine", "likelihood", "energy"])
    ['likelihood', 'energy', 'mine']
    """
    names = dict.fromkeys(str(score) for score in found)
    return [*(name for name in SCORES if name in names), *(name for name in names if name not in SCORES)]
