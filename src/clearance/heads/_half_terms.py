"""Half distances and half log-determinants of a mixture, of all classes and of one, whatever its covariance is."""

from torch import Tensor

from clearance.heads._class_diagonal import class_diagonal, own_class_diagonal
from clearance.heads._class_rows import joined_rows
from clearance.heads._mixture_floor import floored_log_variance, half_log_determinants, whitened
from clearance.heads._remembered import Pass
from clearance.heads._shared_scale import shared_scale_pass
from clearance.heads.mahalanobis import rows_of, scaled_half_squares


def half_terms(
    x: Tensor, means: Tensor, raw: Tensor | None, factor: Tensor | None, floor: float
) -> tuple[Tensor, Tensor, Pass]:
    """Half distances (B, K), half log-determinants (K,) or (1,), and the pass that made the first.

    Args:
        x: (B, D).
        means: (K, D), whitened as `x` where there is a factor.
        raw: Of variances floor + exp(raw), (1, 1), (K, 1), (1, D) or (K, D), or None where they are 1.
        factor: That of a full covariance.
        floor: The least variance.
    """
    if raw is not None and raw.shape == means.shape:
        made = class_diagonal(x, means, raw.to(x.dtype), floor)
        assert made.half_log_determinants is not None
        return made.half_distances, made.half_log_determinants, made
    v = None if raw is None else floored_log_variance(raw, floor)
    volumes = half_log_determinants(v, factor, means)
    wide = None if v is None else v.to(x.dtype)
    if wide is not None and wide.shape[1] > 1:
        made = shared_scale_pass(x, means, (-0.5 * wide[0]).exp())
        return made.half_distances, volumes, made
    made = shared_scale_pass(x, means, None)
    return made.half_distances if wide is None else made.half_distances * wide.neg().exp().T, volumes, made


def own_half_terms(
    x: Tensor,
    labels: Tensor,
    means: Tensor,
    raw: Tensor | None,
    factor: Tensor | None,
    floor: float,
    made: Pass | None,
) -> tuple[Tensor, Tensor]:
    """Both of each sample (B, D) to one class, exact where products round, (B,) and (B,).

    Args:
        x: (B, D), and `means` (K, D), not whitened.
        labels: (B,), the class of each.
        means: As `x`.
        raw: As in :func:`half_terms`.
        factor: As there.
        floor: As there.
        made: The pass that made the logits of these samples from these means, where it is known: gradients join its
            own.
    """
    if made is not None and (made.means.dtype != x.dtype or x.is_inference()):  # not what the logits are of
        made = None
    if made is not None and made.raw is not None:
        return own_class_diagonal(made, x, labels, floor)
    own = means[labels] if made is None else joined_rows(made.means, labels)
    offsets = x - own  # before they are whitened, which would round what they have in common
    if factor is not None:
        offsets = whitened(offsets, factor)
    # before the logarithm: rows of a few samples in place of those of all classes
    rows = rows_of(raw, labels)
    v = None if rows is None else floored_log_variance(rows, floor)
    distance = scaled_half_squares(offsets, None if v is None else v.to(x.dtype))
    return distance, half_log_determinants(v, factor, means).to(x.dtype).expand(len(labels))
