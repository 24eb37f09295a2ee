"""Which output of a model is which class of the images, where both have names."""

import copy
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance.data import ImageSet
from clearance.data.subsets import evenly_spaced
from clearance.models import Classifier
from clearance.models._running import evaluating

_FEW = 4
_PLACEHOLDER = re.compile(
    r"label[ _]?\d+", re.IGNORECASE
)  # what transformers writes where nobody gave a name


def in_order_of(classes: Sequence[str], model: Classifier, example: Tensor) -> Classifier:
    """The model with its outputs in the order of these classes, if it keeps the names of its own.

    Names are those of a Hugging Face configuration (`id2label`), of timm's `pretrained_cfg` (`label_names`), or the
    attribute `classes` of the module. Where none is the same to the letter, capitals, ``_`` and ``-`` do not count; of
    ``"tench, Tinca tinca"`` each name does. Outputs without a class follow. If no name is known, or none fits, the
    model is returned as it is.

    The model is returned unchanged if its order is that of the images' classes, else with a copy of its head;
    `example` holds a few images on the model's device.

    Raises:
        ValueError: If names contradict the order and not all of them are known.

    Warns:
        UserWarning: If the model keeps names and none is that of a class.
    """
    with evaluating(model):
        logits = model(example)
    known = _names_of(model, logits.shape[1])
    exact, others = {name: at for at, name in enumerate(known)}, _places(known)
    places = [exact.get(name, others.get(_plain(name))) for name in classes]
    found = [(place, at) for place, at in enumerate(places) if at is not None]
    if known and not found:
        warnings.warn(
            f"the model's names of classes ({_short(known)}) are none of the images' ({_short(classes)}): its outputs "
            "are taken in the order of the images' classes.",
            UserWarning,
            stacklevel=3,
        )
    if all(place == at for place, at in found):
        return model
    if tuple(classes) == tuple(map(str, range(len(classes)))) and list(known) == sorted(known):
        warnings.warn(
            f"the images' classes are numbers, and the model's names ({_short(known)}) are numbers in the order of "
            "words: its outputs are taken in the order of the images' numbers.",
            UserWarning,
            stacklevel=3,
        )
        return model
    unknown = [name for name, at in zip(classes, places, strict=True) if at is None]
    order = [at for _, at in found]
    if unknown or len(set(order)) < len(order):
        place, at = next(pair for pair in found if pair[0] != pair[1])
        raise ValueError(
            f"the images' classes must be those of the model by name, or in the order of its outputs; "
            f"{classes[place]!r} is class {place} of the images and output {at} of the model, and "
            f"{', '.join(map(repr, unknown[:4])) or 'another'} is none of its classes "
            f"({', '.join(map(repr, known[:4]))}, ...). Rename the folders."
        )
    order += sorted(set(range(logits.shape[1])) - set(order))
    return _reordered(model, order, example, logits)


def _short(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def are_named(classes: Sequence[str], model: Classifier, count: int) -> bool:
    """Whether the model keeps a name for each of these classes; `count` is how many outputs it has."""
    places = _places(_names_of(model, count))
    return all(_plain(name) in places for name in classes)


def few_images(images: ImageSet, device: torch.device) -> Tensor:
    """Some images from all over the set."""
    return images.batch(evenly_spaced(len(images), _FEW))[0].to(device)


def _names_of(model: nn.Module, count: int) -> tuple[str, ...]:
    """The names of the outputs, empty if they have none."""
    for part in model.modules():
        config, pretrained = getattr(part, "config", None), getattr(part, "pretrained_cfg", None)
        for names in (
            getattr(config, "id2label", None),
            pretrained.get("label_names") if isinstance(pretrained, Mapping) else None,
            getattr(part, "classes", None),
        ):
            if isinstance(names, Mapping):
                names = [names[at] for at in sorted(names, key=_as_number)]
            if isinstance(names, (list, tuple)) and len(names) == count:
                named = tuple(str(name) for name in names)
                return () if all(_PLACEHOLDER.fullmatch(name) for name in named) else named
    return ()


def _as_number(key: Any) -> tuple[int, str]:
    """JSON has keys as text, in which 10 comes before 2."""
    return (int(key), "") if str(key).isdecimal() else (0, str(key))


def _places(names: Sequence[str]) -> dict[str, int]:
    """The output of each name; the whole name comes before a part of it."""
    parts = {_plain(part): at for at, name in reversed([*enumerate(names)]) for part in name.split(",")}
    return parts | {_plain(name): at for at, name in enumerate(names)}


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _reordered(model: Classifier, order: list[int], example: Tensor, logits: Tensor) -> Classifier:
    head = copy.deepcopy(model.head)
    layers = [part for part in head.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    for part in layers[-1:]:
        for name, value in part.named_parameters(recurse=False):
            if len(value) == len(order):
                setattr(part, name, nn.Parameter(value.detach()[order], requires_grad=value.requires_grad))
    found = Classifier(model.extractor, head)
    found.mean, found.std, found.training = model.mean, model.std, model.training
    found.cut, found.order = model.cut, tuple(order)
    with evaluating(found):
        proved = torch.allclose(
            found(example), logits[:, order], rtol=1e-4, atol=1e-4 * float(logits.abs().max())
        )
    if not proved:  # a mixture, averaged heads, a black box
        found.head = InOrder(model.head, order)
    return found


class InOrder(nn.Module):
    """A head with its logits in another order.

    >>> InOrder(nn.Identity(), [2, 0, 1])(torch.tensor([[10.0, 20.0, 30.0]]))
    tensor([[30., 10., 20.]])
    """

    def __init__(self, part: nn.Module, order: Sequence[int]) -> None:
        super().__init__()
        self.part, self.order = part, list(order)
        self.training = part.training

    def forward(self, features: Tensor) -> Tensor:
        """Logits, shape (B, K)."""
        logits: Tensor = self.part(features)
        return logits[..., self.order]
