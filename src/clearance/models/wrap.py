"""Any trained module becomes a classifier in two parts, without retraining and with a proof."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance.models import _refusals as refusals
from clearance.models._cut import UntilHead
from clearance.models._observe import Call, evaluating, observed_calls, own_normalisation
from clearance.models.classifier import Classifier


def wrap(
    module: nn.Module,
    head: str | None = None,
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    verbose: bool = True,
) -> Classifier:
    """Cut a trained module into extractor and head: its features are what enters the submodule `head`.

    The cut is proved on `example` in evaluation mode: head(features(x)) equals the module's own output to
    the bit, or it is refused with the reason. The classifier shares the module's weights, buffers and
    submodules, nothing is copied: training or moving one trains or moves the other, and `train()` and
    `eval()` reach the shared submodules. The module itself works as before.

    Args:
        module: Takes one batch of images and returns one tensor of logits.
        head: Name of a submodule, as in ``named_modules()``; None takes the last ``nn.Linear`` that runs.
        example: A few images in [0, 1], shape (B, C, H, W), on the module's device and in its dtype.
        mean: What the module was trained with: subtracted from images in [0, 1], one value or one a channel.
        std: Divides images after that, likewise; above 0.
        verbose: Print one line: head, number of features, and the proof.

    Shapes:
        images (B, C, H, W) in [0, 1]; features (B, D); logits (B, K).

    Returns:
        The classifier; submodule ``layer`` of the module is its layer ``"extractor.module.layer"``.

    Raises:
        ValueError: If `example` is not such a batch; if the module fails on it, returns anything but one
            tensor, or differs between two runs; if the head does not exist, does not run, runs twice,
            receives anything but one tensor (B, D), changes it in place, or shares a parameter with the
            rest; if its output is not the module's output.

    Warns:
        UserWarning: If `mean` and `std` are given although the module seems to normalise by itself.

    Misleading: whatever follows the head and leaves its output on `example` as it is (a clamp that does
    not bite) passes the proof and is dropped.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = wrap(net, example=torch.rand(4, 1, 4, 4))
    wrap: head '3' (Linear 8 -> 3), 8 features; head(features(x)) equals module(x): yes (4 images)
    >>> model.extractor.module[1].weight is net[1].weight
    True
    """
    refusals.check_module(module)
    refusals.check_example(example)
    mean_tensor, std_tensor = _per_channel("mean", mean, example), _per_channel("std", std, example)
    with evaluating(module):
        output, calls = _observed(module, (example - mean_tensor) / std_tensor)
    if bool(mean_tensor.any()) or bool((std_tensor != 1).any()):
        _warn_of_normalising_twice(module, calls, example.shape[1])
    name, part = _chosen_head(module, head, calls)
    refusals.check_head_input(name, [call for call in calls if call.module is part], len(example))
    extractor = UntilHead(module, part)
    refusals.check_separate(name, part, extractor)
    model = Classifier(extractor, part, mean, std)
    model.mean, model.std = mean_tensor, std_tensor  # on the module's device and in its dtype
    model.training = module.training
    with evaluating(model):
        features = _features(model, name, example)
        refusals.check_last(name, refusals.check_features_kept(name, part, features), output)
    if verbose:
        print(  # noqa: T201 - asked for by `verbose`: the proof belongs before the user's eyes
            f"wrap: head {name!r} ({_described(part)}), {features.shape[1]} features; "
            f"head(features(x)) equals module(x): yes ({len(example)} images)"
        )
    return model


def _per_channel(name: str, value: float | Sequence[float], example: Tensor) -> Tensor:
    channels = torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1)
    if len(channels) not in (1, example.shape[1]):
        raise ValueError(
            f"`{name}` must be one value or one a channel ({example.shape[1]} in the example); got {value}."
        )
    if name == "std" and not bool((channels > 0).all()):
        raise ValueError(f"`std` must be above 0 in every channel; got {value}.")
    return channels.to(example)


def _observed(module: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Call]]:
    try:
        # Clones, because a module may work on its input in place.
        output, calls = observed_calls(module, inputs.clone())
        again = module(inputs.clone())
    except Exception as error:
        raise ValueError(
            f"`module` must take the example as its only argument, shape {tuple(inputs.shape)}, "
            f"{inputs.dtype} on {inputs.device}; it fails with {type(error).__name__}: {error}"
        ) from error
    refusals.check_output(output)
    refusals.check_repeatable(output, again)
    return output, calls


def _warn_of_normalising_twice(module: nn.Module, calls: list[Call], channels: int) -> None:
    habit = own_normalisation(module, calls, channels)
    if habit:
        warnings.warn(
            f"`module` seems to normalise by itself ({habit}), and `mean` and `std` normalise before that; "
            "leave them out unless it was trained with both.",
            UserWarning,
            stacklevel=3,
        )


def _chosen_head(module: nn.Module, head: str | None, calls: list[Call]) -> tuple[str, nn.Module]:
    names = {name: part for name, part in module.named_modules(remove_duplicate=False) if name}
    if head is not None:
        if head not in names:
            raise ValueError(
                f"`head` must name a submodule of the {type(module).__name__}; got {head!r}. "
                f"{refusals.nearest_name(module, head)}"
            )
        return head, names[head]
    linear = [call.module for call in calls if isinstance(call.module, nn.Linear)]
    if not linear:
        raise ValueError(
            f"no nn.Linear runs in the {type(module).__name__}; name the submodule that turns features of "
            "shape (B, D) into logits: wrap(module, head=...)."
        )
    return next((name, part) for name, part in names.items() if part is linear[-1])


def _features(model: Classifier, name: str, example: Tensor) -> Tensor:
    try:
        return model.features(example)
    except Exception as error:
        raise ValueError(
            f"the module runs with head {name!r} but not up to it, with {type(error).__name__}: {error} "
            "Its forward pass must reach the head by its attribute, and do nothing with it but call it."
        ) from error


def _described(head: Any) -> str:
    sizes = f" {head.in_features} -> {head.out_features}" if isinstance(head, nn.Linear) else ""
    return f"{type(head).__name__}{sizes}"
