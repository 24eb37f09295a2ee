"""Fisher distances along a path of heads against per-sample gradients: time and memory, in one run, one thread.

    python benchmarks/geodesic.py [--small]

15 segments, 3 layers, 2,500 samples, head 4096-128-128-10, float64. The usual way takes every sample's gradient
by `vmap(grad)`, some samples at a time (a chunk), and its product with each layer's part of the step. Several sizes
of chunk are shown, because the usual way buys memory with it.

Time is the CPU's, which other work on the machine moves less than the clock's: the median over rounds, in turn. A
round of the usual way is one segment, counted fifteen times, because all of them cost the same. Memory is how
far a way raises the resident size of a process of its own (Linux only); data and heads are there before. Both
ways give the same numbers (checked here to 1e-9).
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from clearance.heads import MLP, HeadStack
from clearance.heads.fisher import segment_distances

TARGET_TIME, TARGET_MEMORY = 10.0, 20.0


@dataclass(frozen=True)
class Case:
    """A path of heads width-hidden-hidden-10, and how many samples' gradients the usual way holds at once."""

    width: int = 4096
    hidden: int = 128
    samples: int = 2500
    segments: int = 15
    chunk: int = 250


SMALL = Case(width=64, hidden=16, samples=100, segments=3, chunk=50)
CHUNKS = (250, 50, 5)
ROUNDS = 3
LAYERS = ("0.", "2.", "4.", "")
Data = tuple[HeadStack, dict[str, Tensor], Tensor, Tensor]


def data_of(case: Case) -> Data:
    """Start, step, features and labels, in float64 already, so that neither way pays for the conversion."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(case.samples, case.width, generator=generator, dtype=torch.float64)
    features *= (128 / case.width) ** 0.5
    labels = torch.arange(case.samples) % 10
    head = MLP((case.width, case.hidden, case.hidden, 10)).double()
    ends = HeadStack.initialised(head, 2, generator)
    step = {name: (value[1] - value[0]) / case.segments for name, value in ends.parameters.items()}
    return ends.select(torch.tensor([0])), step, features, labels


def usual(case: Case, data: Data, points: int = 1) -> Tensor:
    """Empirical distances (layers and all, first `points` segments) through the gradient of every sample."""
    start, step, features, labels = data
    one_hot = torch.nn.functional.one_hot(labels, 10).double()

    def loss(parameters: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
        logits = functional_call(start.architecture, parameters, (sample,))
        return -(target * logits.log_softmax(dim=0)).sum()

    gradients = vmap(grad(loss), (None, 0, 0))
    found = torch.zeros(len(LAYERS), points, dtype=torch.float64)
    for a in range(points):
        here = {name: value[0] + a * step[name] for name, value in start.parameters.items()}
        for part, own in zip(features.split(case.chunk), one_hot.split(case.chunk), strict=True):
            slopes = {n: g.flatten(1) @ step[n].flatten() for n, g in gradients(here, part, own).items()}
            for row, prefix in enumerate(LAYERS):
                layer = [value for name, value in slopes.items() if name.startswith(prefix)]
                found[row, a] += torch.stack(layer).sum(dim=0).square().sum()
    return (found / len(labels)).sqrt()


def ours(case: Case, data: Data) -> Tensor:
    """All segments without a gradient of the weights' size; the model's information comes with them."""
    start, step, features, labels = data
    return segment_distances(start, step, features, labels, case.segments).empirical


WAYS: dict[str, Callable[[Case, Data], Tensor]] = {"usual": usual, "ours": ours}


def seconds(way: Callable[[Case, Data], Tensor], case: Case, data: Data) -> float:
    began = time.process_time()
    way(case, data)
    return time.process_time() - began


def warm_up() -> None:
    data = data_of(SMALL)
    torch.testing.assert_close(ours(SMALL, data), usual(SMALL, data, SMALL.segments), rtol=1e-9, atol=0)


def extra_bytes(way: str, case: Case) -> int:
    """How far the resident size of this process rises while it goes one way, everything being loaded before."""
    warm_up()
    data = data_of(case)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before = resident("VmRSS")
    WAYS[way](case, data)
    return resident("VmHWM") - before


def resident(field: str) -> int:
    """Bytes from Linux's account of this process; getrusage would count what the parent had, too."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return 1024 * int(line.split()[1])


def extra_mebibytes(way: str, chunk: int, *, small: bool) -> float:
    """The same in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--memory", way, "--chunk", str(chunk)]
    command += ["--small"] if small else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) / 2**20


def compare(case: Case, chunks: tuple[int, ...], *, small: bool) -> None:
    data = data_of(case)
    own = ours(case, data)
    little = extra_mebibytes("ours", case.chunk, small=small)
    for chunk in chunks:
        chunked = replace(case, chunk=chunk)
        torch.testing.assert_close(own[:, :1], usual(chunked, data), rtol=1e-9, atol=0)
        pairs = [(seconds(usual, chunked, data), seconds(ours, case, data)) for _ in range(ROUNDS)]
        slow = case.segments * statistics.median(pair[0] for pair in pairs)
        fast = statistics.median(pair[1] for pair in pairs)
        much = extra_mebibytes("usual", chunk, small=small)
        ratio = much / little if little > 0 else float("inf")
        print(
            f"{chunk:>6} {slow:9.2f} {fast:7.2f} {slow / fast:6.1f} {much:10.0f} {little:9.0f} {ratio:6.1f}",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Fisher distances against per-sample gradients.")
    parser.add_argument("--small", action="store_true", help="tiny sizes: whether it runs, not how fast")
    parser.add_argument("--memory", choices=WAYS, help="only print what this way adds to memory, bytes")
    parser.add_argument("--chunk", type=int, default=CHUNKS[0], help="samples at a time, with --memory")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    case = SMALL if options.small else Case()
    if options.memory:
        print(extra_bytes(options.memory, replace(case, chunk=options.chunk)))
        return
    warm_up()
    head = f"{case.width}-{case.hidden}-{case.hidden}-10"
    print(
        f"{case.segments} segments, {case.samples} samples, head {head}, float64, one thread, medians of",
        ROUNDS,
    )
    print(f"targets: {TARGET_TIME:g} times faster, {TARGET_MEMORY:g} times less memory")
    print(" chunk   usual s  ours s  ratio  usual MiB  ours MiB  ratio")
    compare(case, (SMALL.chunk,) if options.small else CHUNKS, small=options.small)


if __name__ == "__main__":
    main()
