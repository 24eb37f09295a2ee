"""Any trained module becomes a classifier in two parts, without retraining and with a proof."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance.data.preprocessing import preprocessing_of
from clearance.models import _refusals as refusals
from clearance.models._cuts import is_point_convolution
from clearance.models._observe import Call, evaluating, observed_calls, own_normalisation
from clearance.models._outputs import logits_entries
from clearance.models._proof import Seen, proved
from clearance.models.classifier import Classifier

LARGEST = {"mean": 1.0, "std": 2.0}  # of images in [0, 1]; larger ones count grey levels


def wrap(
    module: nn.Module,
    head: str | None = None,
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    preprocessing: Any = None,
    verbose: bool = True,
) -> Classifier:
    """Cut a trained module into extractor and head: its features are what enters the submodule `head`.

    The cut is proved on `example` in evaluation mode: head(features(x)) equals the module's own output to
    the bit, or it is refused with the reason. The classifier shares the module's weights, buffers and
    submodules, nothing is copied: training or moving one trains or moves the other, and `train()` and
    `eval()` reach the shared submodules. The module itself works as before.

    Logits are found in an object's or dictionary's `logits` too, as Hugging Face's models return them. Of several
    tensors (two heads, an auxiliary one) they are those that the named `head` makes. A head may read maps
    (B, C, H, W): a 1x1 convolution before global average pooling has features that are averaged first, which is
    the same but for rounding; any other is given the maps flattened.

    Args:
        module: Takes one batch of images and returns logits.
        head: Name of a submodule, as in ``named_modules()``; None takes the last ``nn.Linear`` or 1x1 convolution
            that runs.
        example: A few images in [0, 1], shape (B, C, H, W), on the module's device and in its dtype.
        mean: What the module was trained with: subtracted from images in [0, 1], one value or one a channel.
        std: Divides images after that, likewise; above 0.
        preprocessing: In place of `mean` and `std`, what keeps them: see :func:`clearance.data.preprocessing_of`
            (a timm model or its `pretrained_cfg`, torchvision's ``weights.transforms()``, an image processor).
        verbose: Print one line: head, number of features, and the proof.

    Shapes:
        images (B, C, H, W) in [0, 1]; features (B, D); logits (B, K).

    Returns:
        The classifier; submodule ``layer`` of the module is its layer ``"extractor.module.layer"``.

    Raises:
        ValueError: If `example` is not such a batch; if the module fails on it, returns no logits, or differs
            between two runs; if the head does not exist, does not run, runs twice, receives anything but one
            tensor (B, D) or (B, C, H, W), changes it in place, or shares a parameter with the rest; if its
            output is not the module's output; if `preprocessing` stands beside `mean` or `std`, or keeps neither.

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
    model, line = wrapped(module, head, example=example, mean=mean, std=std, preprocessing=preprocessing)
    if verbose:
        print(line)  # noqa: T201 - asked for by `verbose`: the proof belongs before the user's eyes
    return model


def wrapped(
    module: nn.Module,
    head: str | None = None,
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    preprocessing: Any = None,
) -> tuple[Classifier, str]:
    """The same, and the line that `wrap` prints."""
    refusals.check_module(module)
    refusals.check_example(example)
    if preprocessing is not None:
        mean, std = _kept_by(preprocessing, mean, std)
    mean_tensor, std_tensor = _per_channel("mean", mean, example), _per_channel("std", std, example)
    with evaluating(module):
        entries, calls = _observed(module, (example - mean_tensor) / std_tensor, head)
    if bool(mean_tensor.any()) or bool((std_tensor != 1).any()):
        _warn_of_normalising_twice(module, calls, example.shape[1])
    name, part = _chosen_head(module, head, calls)
    received = refusals.check_head_input(name, [call for call in calls if call.module is part], len(example))
    seen = Seen(module, entries, calls, name, part, received)
    model, width, proof = proved(seen, example, mean_tensor, std_tensor)
    line = f"wrap: head {name!r} ({_described(part)}), {width} features; head(features(x)) equals module(x): {proof}"
    return model, line


def _kept_by(
    source: Any, mean: float | Sequence[float], std: float | Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    if (mean, std) != (0.0, 1.0):
        raise ValueError(
            f"give `preprocessing`, or `mean` and `std`, not both; got mean {mean} and std {std} too."
        )
    found = preprocessing_of(source)
    if found.mean is None or found.std is None:
        raise ValueError(
            f"`preprocessing` must keep mean and std; got a {type(source).__name__} without. Give `mean` and `std`."
        )
    return found.mean, found.std


def _per_channel(name: str, value: float | Sequence[float], example: Tensor) -> Tensor:
    channels = torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1)
    if len(channels) not in (1, example.shape[1]):
        raise ValueError(
            f"`{name}` must be one value or one a channel ({example.shape[1]} in the example); got {value}."
        )
    if name == "std" and not bool((channels > 0).all()):
        raise ValueError(f"`std` must be above 0 in every channel; got {value}.")
    check_of_unit_images(name, channels.flatten().tolist())
    return channels.to(example)


def check_of_unit_images(name: str, values: Sequence[float]) -> None:
    """Raise ValueError for a mean or standard deviation of images that count grey levels.

    >>> check_of_unit_images("mean", (0.485, 0.456, 0.406))
    """
    if any(value > LARGEST[name] for value in values):
        raise ValueError(
            f"`{name}` must be that of images in [0, 1], at most {LARGEST[name]:g}; got "
            f"{', '.join(f'{value:g}' for value in values)}. Divide `mean` and `std` by 255 where they are those of "
            "images up to 255."
        )


def _observed(module: nn.Module, inputs: Tensor, head: str | None) -> tuple[dict[str, Tensor], list[Call]]:
    try:
        # Clones, because a module may work on its input in place.
        output, calls = observed_calls(module, inputs.clone())
        again = module(inputs.clone())
    except Exception as error:
        raise ValueError(
            f"`module` must take the example as its only argument, shape {tuple(inputs.shape)}, "
            f"{inputs.dtype} on {inputs.device}; it fails with {type(error).__name__}: {error}"
        ) from error
    entries = logits_entries(output)
    refusals.check_output(output, entries, head)
    refusals.check_repeatable(entries, logits_entries(again))
    return entries, calls


def _warn_of_normalising_twice(module: nn.Module, calls: list[Call], channels: int) -> None:
    habit = own_normalisation(module, calls, channels)
    if habit:
        warnings.warn(
            f"`module` seems to normalise by itself ({habit}), and `mean` and `std` normalise before that; "
            "leave them out unless it was trained with both.",
            UserWarning,
            stacklevel=4,
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
    linear = [
        call.module
        for call in calls
        if isinstance(call.module, nn.Linear) or is_point_convolution(call.module)
    ]
    if not linear:
        raise ValueError(
            f"no nn.Linear runs in the {type(module).__name__}, nor a 1x1 convolution; name the submodule that "
            "turns features of shape (B, D) into logits: wrap(module, head=...)."
        )
    return next((name, part) for name, part in names.items() if part is linear[-1])


def _described(head: Any) -> str:
    sizes = f" {head.in_features} -> {head.out_features}" if isinstance(head, nn.Linear) else ""
    return f"{type(head).__name__}{sizes}"
