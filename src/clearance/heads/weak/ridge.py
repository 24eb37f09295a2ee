"""Weak heads in closed form: the exact minimiser of Eq. 4 for a linear head under squared error."""

import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance._checks import check_positive
from clearance.heads.ridge import solve_ridge
from clearance.heads.scale import feature_unit
from clearance.heads.train import TrainedHeads
from clearance.heads.weak._linear import check_batches, linear_names, solved_heads


def ridge_is_too_strong(samples: int, width: int) -> bool:
    """Whether a ridge head has at least as many equations as unknowns: n - 1 >= D.

    A head on fewer samples fits all of them and so depends on the draw; therefore heads differ, and FOCA contracts
    the classes. With n - 1 >= D and a small penalty all heads are nearly the regression on the entire training set,
    and the scatter across their common direction stays.

    n counts the training images of one head, of all classes together; D is the number of features.

    >>> ridge_is_too_strong(samples=100, width=4096), ridge_is_too_strong(samples=100, width=64)
    (False, True)
    """
    return samples - 1 >= width


@dataclass(frozen=True)
class RidgeHeads:
    r"""Linear heads that solve Eq. 4 exactly for squared error against one-hot targets.

    theta_b = argmin_{W,b}  mean_{i in b} ||W f_i + b - e_{y_i}||^2 + lambda_b ||W||^2

    with lambda_b = `penalty` * m * max(1, u0 / u)^2 if `relative`, else `penalty`. Here
    m = mean ||f - mean of its batch||^2 over all batches that are drawn at once, u is the unit of these features
    (:func:`clearance.heads.scale.feature_unit`) and u0 the `least_unit` of ``draw``.

    Source: Sato et al. (2019), Eq. 4; there the bias is penalised, here it is not (as in condition C5). On one image of
    each of two classes, with ``RidgeHeads(penalty / 4, relative=False)``, it is the head s of Eq. 11 for that penalty
    (:func:`clearance.heads.ridge.pair_head`), as the two logits (1 - s) / 2 and (1 + s) / 2: gradients with respect to
    features are half of those in the paper, because ||z - e_y||^2 = (s - t)^2 / 2.

    With a penalty that follows the scale, features times c, with c in the next layer, are the same model with
    the same heads. It does not bound that scale: a step of FOCA moves two points at a large distance D apart in
    proportion to 1 / D, and to 1 / D^3 under a fixed penalty. Below the least unit, which FOCA takes from the
    features it starts with, the penalty has its value at that unit: heads of shrinking features become less
    confident, and the loss asks for larger features.

    Args:
        penalty: lambda, above 0: a share of the features' scatter if `relative`, else in squared units of the
            features. The paper gives no value; of 0.0001, 0.01 and 0.1, 0.01 had the lowest loss under new heads in
            short runs on the digits' training images.
        relative: Whether the penalty follows the scale of the features.

    Raises:
        ValueError: If `penalty` is not above 0.

    Misleads under cross-entropy: logits between 0 and 1 are never confident, so the loss always asks for larger
    features. Train the extractor with SquaredErrorLoss (one loss for both, Eq. 2 and 4), or use batch normalisation.

    Misleads, and warns, when a head has more samples than features (:func:`ridge_is_too_strong`).

    >>> features, labels = torch.eye(4)[:3].expand(2, 3, 4), torch.arange(3).expand(2, 3)
    >>> drawn = RidgeHeads(1e-6).draw(nn.Linear(4, 3), features, labels, torch.Generator())
    >>> drawn.stack(features)[0].round().abs()
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """

    penalty: float = 0.01
    relative: bool = True

    def __post_init__(self) -> None:
        check_positive("penalty", self.penalty)

    @torch.no_grad()
    def draw(
        self,
        architecture: nn.Module,
        features: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        least_unit: Tensor | None = None,
    ) -> TrainedHeads:
        """K heads, one for each batch of features.

        Args:
            architecture: One nn.Linear with a bias.
            features: (K, n, D); head k solves ``features[k]``.
            labels: (K, n). A class that a batch lacks gets logit 0 everywhere.
            generator: Not used: the solution is not random.
            least_unit: If `relative`, the penalty is at least its value at this unit, 0-dim. Otherwise not
                used: a fixed penalty already weakens heads of shrinking features.

        Raises:
            ValueError: If the head is not one linear layer, or shapes or labels do not fit.
        """
        del generator
        names = linear_names(architecture, "RidgeHeads")
        classes = architecture.get_parameter(names[0]).shape[0]
        check_batches(features, labels, classes)
        samples, width = features.shape[1:]
        if ridge_is_too_strong(samples, width):
            # Python shows a warning with the same text and place once.
            warnings.warn(
                f"RidgeHeads are too strong with {samples} samples for {width} features: the heads are nearly "
                f"equal, and classes do not contract to points. Use fewer than {width + 1} samples per head "
                "(per_class), wider features, or GradientHeads.",
                UserWarning,
                stacklevel=2,
            )
        penalty = self._scaled_penalty(features.double(), least_unit) if self.relative else self.penalty
        solution = solve_ridge(features, F.one_hot(labels, classes), penalty)
        return solved_heads(architecture, dict(zip(names, solution, strict=True)), like=features)

    def _scaled_penalty(self, features: Tensor, least_unit: Tensor | None) -> Tensor:
        """The penalty of every head, 0-dim, in squared units of the features."""
        finite = features.isfinite().flatten(1).all(dim=1)
        kept = features[finite]  # one head's infinite features do not affect the others
        shifted = kept - kept[:, :1]
        scatter = (shifted - shifted.mean(dim=1, keepdim=True)).square().sum(dim=2).mean()
        if not bool(scatter > 0):
            return scatter.new_tensor(1.0)  # if features coincide, any penalty gives weight 0
        if least_unit is None:
            return self.penalty * scatter
        return self.penalty * scatter * (least_unit / feature_unit(kept)).clamp(min=1).square()
