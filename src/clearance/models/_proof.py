"""The proof of a cut: a classifier whose logits on an example are the module's, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearance.models import _refusals as refusals
from clearance.models._cuts import Cut, cuts
from clearance.models._observe import Call, evaluating
from clearance.models._outputs import entry_made_by
from clearance.models.classifier import Classifier

ROUNDING = 1e-5  # of the largest logit: what averaging before a 1x1 convolution, not after it, may change


@dataclass(frozen=True)
class Seen:
    """A module, what it did with the example, and the head that was chosen in it.

    `entries` are the tensors that it returned, `received` the shape of what entered the head.
    """

    module: nn.Module
    entries: Mapping[str, Tensor]
    calls: list[Call]
    name: str
    head: nn.Module
    received: tuple[int, ...]


def proved(seen: Seen, example: Tensor, mean: Tensor, std: Tensor) -> tuple[Classifier, int, str]:
    """The first cut whose logits are the module's, its number of features, and the proof in words."""
    for cut in cuts(seen.module, seen.head, seen.received):
        refusals.check_separate(seen.name, seen.head, cut.extractor)
        model = Classifier(cut.extractor, cut.head)
        model.mean, model.std = mean, std  # on the module's device and in its dtype
        model.training = seen.module.training
        with evaluating(model):
            features = _features(model, seen.name, example)
            logits = refusals.check_features_kept(seen.name, cut.head, features)
        output = _counterpart(logits, seen.entries)
        if len(seen.received) == 2:
            refusals.check_last(seen.name, logits, output, _rivals(seen))
        elif not _equal(cut, logits, output):
            continue
        return model, features.shape[1], _in_words(cut, logits, output) + _whole_head(seen)
    raise refusals.unfit_map_head(seen.name, seen.received)


def _counterpart(logits: Tensor, entries: Mapping[str, Tensor]) -> Tensor:
    """What the module returned in place of the head's logits: of several tensors the one that equals them."""
    made = entry_made_by(logits, entries) if isinstance(logits, Tensor) else None
    return next(iter(entries.values())) if made is None else made


def _equal(cut: Cut, logits: Tensor, output: Tensor) -> bool:
    if logits.shape != output.shape or cut.exact:
        return torch.equal(logits, output)
    return float((logits - output).abs().max()) <= ROUNDING * float(output.abs().max())


def _in_words(cut: Cut, logits: Tensor, output: Tensor) -> str:
    gap = float((logits - output).abs().max())
    said = f"yes, to {gap:.1g}" if gap else "yes"
    return f"{said} ({len(logits)} images)" + (f"; {cut.how}" if cut.how else "")


def _rivals(seen: Seen) -> list[str]:
    """Names of other linear layers that run and have as many outputs as the head (and are no hidden layers)."""
    outputs = getattr(seen.head, "out_features", None)
    if outputs is None or outputs == getattr(seen.head, "in_features", None):
        return []
    ran = {id(call.module) for call in seen.calls} - {id(seen.head)}
    return [
        name
        for name, part in seen.module.named_modules()
        if isinstance(part, nn.Linear) and id(part) in ran and part.out_features == outputs
    ]


def _whole_head(seen: Seen) -> str:
    """What to name for all linear layers at the end, where the head is the last of a sequence of them."""
    outer = seen.name.rpartition(".")[0]
    parent = seen.module.get_submodule(outer) if outer else seen.module
    linear = [part for part in parent.children() if isinstance(part, nn.Linear)]
    entered = [call.received for call in seen.calls if call.module is parent]
    one_vector = len(entered) == 1 and entered[0] is not None and len(entered[0]) == 2
    if not isinstance(parent, nn.Sequential) or len(linear) < 2 or not one_vector:
        return ""
    return f"; head={outer!r} would take all {len(linear)} linear layers, on {linear[0].in_features} features"


def _features(model: Classifier, name: str, example: Tensor) -> Tensor:
    try:
        return model.features(example)
    except Exception as error:
        raise ValueError(
            f"the module runs with head {name!r} but not up to it, with {type(error).__name__}: {error} "
            "Its forward pass must reach the head by its attribute, and do nothing with it but call it."
        ) from error
