"""Running a network: in evaluation mode, on its device, in its precision, with the memory layout for a CPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from clearance.models.classifier import Classifier

_NEIGHBOURS = 0.05  # of the spread of all logits; quantised models change by less
_ANY_FORMAT = ("torch.nn.modules.", "clearance.")  # code that does not depend on the memory format of tensors


def device_of(model: nn.Module) -> torch.device:
    """The device of its first parameter or, without parameters, its first buffer."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def device_named(name: str) -> torch.device:
    """The device of that name; ``"auto"`` is CUDA if available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"`device` must be 'auto' or a device of torch's, such as 'cpu'; got {name!r}."
        ) from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` {name!r} is not available: torch finds no CUDA. Use 'auto' or 'cpu'.")
    try:
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # a build of torch without it
        raise ValueError(
            f"`device` {name!r} is not available: {str(error).splitlines()[0]}. Use 'auto' or 'cpu'."
        ) from error
    return place


def with_channels_last(model: Classifier) -> Classifier:
    """The same classifier with filters in channels-last memory format: only rounding differs."""
    moved: Classifier = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it
    return moved


@contextmanager
def filters_channels_last(module: nn.Module) -> Iterator[None]:
    """Filters in channels-last format inside the block; afterwards every filter is the same tensor as before.

    Nothing changes for modules that may depend on the memory format (a user's own forward pass with a ``view``), on
    other devices, and in other precisions than float32, for which CPUs have no such kernels.
    """
    filters = _filters(module)
    before = [weight.data for weight in filters]
    for weight in filters:
        # not `contiguous`, which does not change filters of one channel, nor the format of their output
        weight.data = weight.data.to(memory_format=torch.channels_last)
    try:
        yield
    finally:
        for weight, data in zip(filters, before, strict=True):
            weight.data = data


def _filters(module: nn.Module) -> list[Tensor]:
    if not all(type(part).__module__.startswith(_ANY_FORMAT) for part in module.modules()):
        return []  # a user's own class
    weights = {part.weight for part in module.modules() if isinstance(part, nn.Conv2d)}
    return [one for one in weights if one.device.type == "cpu" and one.dtype is torch.float32]


def put_in_evaluation_mode(module: nn.Module) -> None:
    """``module.eval()``.

    Raises:
        ValueError: If that raises.
    """
    try:
        module.eval()
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"the model must have an evaluation mode; its eval() raised {type(error).__name__}: {said}. A program from "
            "torch.export has none: give the module that was exported, or a module whose forward calls the program."
        ) from error


def check_has_data(module: nn.Module) -> None:
    """Raise ValueError for weights on the meta device, which have shapes but no numbers."""
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if tensor.is_meta:
            raise ValueError(
                f"the model's weights must hold numbers; got {name!r} on the meta device. Load them first: "
                "module.to_empty(device='cpu'), then module.load_state_dict(...)."
            )


@contextmanager
def in_evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every submodule has its previous mode.

    Raises:
        ValueError: If the module cannot be put into it, or its weights are on the meta device.
    """
    check_has_data(module)
    modes = [(part, part.training) for part in module.modules()]
    try:
        put_in_evaluation_mode(module)
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def in_float32(model: nn.Module, image: Tensor) -> Iterator[None]:
    """Inside the block, weights of other precisions are float32 copies; afterwards everything is as before.

    They stay where the model cannot answer `image`, (1, C, H, W), with such copies, because it casts images itself.

    The copies take the weights' place: a model whose ``forward`` another package has replaced (mixed precision) cannot
    be copied as a whole. Inside the block it has the ``forward`` of its class.

    Warns:
        UserWarning: If there are such weights.
    """
    tensors: chain[Tensor] = chain(model.parameters(), model.buffers())
    others = [one for one in tensors if one.is_floating_point() and one.dtype is not torch.float32]
    before = [one.data for one in others]
    replaced = vars(model).pop("forward", None)

    def put_back() -> None:
        for one, data in zip(others, before, strict=True):
            one.data = data

    try:
        for one in others:
            one.data = one.data.float()
        if others and _answers(model, image):
            warnings.warn(
                f"weights in {', '.join(sorted({str(one.dtype) for one in before}))} are audited in a float32 copy; "
                "the model's own precision can give other numbers.",
                UserWarning,
                stacklevel=5,
            )
        elif others:
            put_back()
        yield
    finally:
        put_back()
        if replaced is not None:
            vars(model)["forward"] = replaced


def _answers(model: nn.Module, image: Tensor) -> bool:
    try:
        with evaluating(model):
            model(image)
    except RuntimeError:
        return False
    return True


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside the block."""
    with in_evaluation_mode(module), torch.no_grad():
        yield


def warn_of_neighbours(model: nn.Module, example: Tensor) -> None:
    """Warn if an image's logits depend on the other images of its batch: black images take their place."""
    half = (len(example) + 1) // 2
    with evaluating(model):
        logits, beside = model(example), model(torch.cat([example[:half], torch.zeros_like(example[half:])]))
    if float((beside - logits)[:half].abs().max()) > _NEIGHBOURS * float(logits.std(correction=0)):
        warnings.warn(
            "an image's logits depend on the other images of its batch, as those of a layer that uses a batch's "
            "statistics in evaluation mode do; every number then depends on batches. Give batch normalisation running "
            "statistics (track_running_stats=True).",
            UserWarning,
            stacklevel=4,
        )
