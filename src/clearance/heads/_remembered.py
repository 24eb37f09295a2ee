"""What logits were made of, kept beside them, so that a loss that sees them need not compute it again."""

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from clearance.heads._transforms import transformed


class Pass(NamedTuple):
    """What one pass over the classes made: half distances (B, K), and parameters as they went through it.

    Gradients are best given to these: they join tables that the pass writes anyway.

    Args:
        half_distances: (B, K).
        means: (K, D).
        raw: (K, D), of variances of each dimension of each class; None where they are others.
        half_log_determinants: 1/2 log|Sigma_k|, (K,), likewise.
        excess_log_variances: 1/2 (log|Sigma_k| + tr Sigma_k^-1 - D), (K,), likewise.
        joined: Whether gradients that are given to these do join others, and may be sparse.
    """

    half_distances: Tensor
    means: Tensor
    raw: Tensor | None = None
    half_log_determinants: Tensor | None = None
    excess_log_variances: Tensor | None = None
    joined: bool = False


class _Kept(NamedTuple):
    made: Pass
    parameters: list[weakref.ref[Tensor] | None]
    states: list[tuple[int, int, bool]]


_OF_LOGITS: WeakIdKeyDictionary = WeakIdKeyDictionary()


def remember(logits: Tensor, made: Pass | None, parameters: Sequence[Tensor | None]) -> None:
    """Keep what these logits were made of for as long as they live and can be differentiated.

    Args:
        logits: Whose key it is.
        made: Nothing is kept of None, or of a pass whose gradients do not join.
        parameters: Of the head, which may be of another dtype than what went through the pass.
    """
    if made is not None and made.joined and logits.requires_grad:
        refs = [None if one is None else weakref.ref(one) for one in parameters]
        _OF_LOGITS[logits] = _Kept(made, refs, _states(parameters))


def remembered(logits: Tensor | None, parameters: Sequence[Tensor | None]) -> Pass | None:
    """What these logits were made of, or None where that is not known, or not of these parameters as they are now."""
    if logits is None or transformed() or (kept := _OF_LOGITS.get(logits)) is None:
        return None
    own = [None if ref is None else ref() for ref in kept.parameters]
    same = all(one is other for one, other in zip(own, parameters, strict=True))
    return kept.made if same and kept.states == _states(parameters) else None


def _states(parameters: Sequence[Tensor | None]) -> list[tuple[int, int, bool]]:
    return [(one._version, one.data_ptr(), one.requires_grad) for one in parameters if one is not None]
