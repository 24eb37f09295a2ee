"""What the benchmarks measure with: seconds of a call, medians of several taking turns, and peak memory."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def as_after_a_network() -> None:
    """Make and free one tensor of 31 MB, as activations of a network are.

    From then on glibc keeps the pages of smaller tensors; before, it gives those of a step back, and new ones can cost
    as much as a matrix product.
    """
    tensor = torch.empty(31 * 2**20, dtype=torch.uint8)
    del tensor


def seconds(action: Callable[[], object], device: str = "cpu") -> float:
    """Of one call: CPU seconds of this process, which other work on the machine disturbs little; wall time of a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()
        began = time.perf_counter()
        action()
        torch.cuda.synchronize()
        return time.perf_counter() - began
    began = time.process_time()
    action()
    return time.process_time() - began


def medians(
    actions: Sequence[Callable[[], object]], rounds: int, *, warm_up: int, device: str = "cpu"
) -> list[float]:
    """Of each action, all of them in turn in every round; the first `warm_up` rounds are not counted."""
    rows = [[seconds(action, device) for action in actions] for _ in range(rounds + warm_up)][warm_up:]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def peak_bytes(action: Callable[[], object], device: str = "cpu") -> int:
    """How far memory rises above what is there before a call; one call warms up."""
    action()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        action()
        return torch.cuda.max_memory_allocated() - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(profile_memory=True, activities=activities) as profile:
        action()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
