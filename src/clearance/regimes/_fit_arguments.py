"""What ``fit`` is given beside model and data: kinds, lengths, processes and device, checked before anything moves."""

from pathlib import Path

import torch
from torch.optim import Optimizer

from clearance._checks import check_count
from clearance.regimes._distributed import process_count
from clearance.regimes._regime import Regime


def check_processes(batch_size: int, run_dir: str | Path | None) -> None:
    """Raise ValueError where several processes are given what only one can use, or too small a batch."""
    processes = process_count()
    if processes > 1 and run_dir is not None:
        raise ValueError(
            f"`run_dir` must be None with {processes} processes, because a run's directory belongs to one; save "
            "the trained model from the first."
        )
    if processes > 1 and batch_size < 2 * processes:
        raise ValueError(
            f"`batch_size` must be at least {2 * processes} with {processes} processes, two images for each; got "
            f"{batch_size}. Raise it, or start fewer."
        )


def check_kinds(regime: object, optimizer: object) -> None:
    """Raise TypeError unless these are a regime and something that makes an optimiser."""
    if not isinstance(regime, Regime):
        raise TypeError(
            f"`regime` must be a regime, such as clearance.regimes.EndToEnd() or FOCA(); got {regime!r}."
        )
    if isinstance(optimizer, Optimizer) or not callable(optimizer):
        raise TypeError(
            "`optimizer` must be called with parameters, such as partial(torch.optim.SGD, lr=0.05), because the "
            f"regime says which ones; got {type(optimizer).__name__}."
        )


def check_lengths(epochs: int | None, steps: int | None, batch_size: int, checkpoint_every: int) -> None:
    """Raise ValueError unless one of `epochs` and `steps` is given, and every number is at least 1."""
    if (epochs is None) == (steps is None):
        raise ValueError(f"one of `epochs` and `steps` must be given; got epochs={epochs} and steps={steps}.")
    check_count("epochs" if steps is None else "steps", epochs if steps is None else steps)  # type: ignore[arg-type]
    check_count("batch_size", batch_size)
    check_count("checkpoint_every", checkpoint_every)


def device_named(name: str) -> torch.device:
    """The device of that name; ``"auto"`` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"`device` must be 'auto' or a device of torch's, such as 'cpu'; got {name!r}."
        ) from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` {name!r} is not there: torch sees no CUDA; take 'auto' or 'cpu'.")
    try:
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # what a build of torch that lacks it says
        raise ValueError(
            f"`device` {name!r} is not there: {str(error).splitlines()[0]}; take 'auto' or 'cpu'."
        ) from error
    return place
