"""What a step of the large-margin loss costs compared with a step of cross-entropy: ratios of medians, in one run.

    python benchmarks/large_margin.py                  # minutes; one thread on a CPU, or the GPU where there is one
    python benchmarks/large_margin.py --only resnet    # one group: resnet, rivals, memory
    python benchmarks/large_margin.py --small          # to see that it runs

Let F be a forward pass; gradients of activations and of weights cost about F each, so a plain step costs 3F. One
backward sweep for each rival serves all layers: (3 + k)/3, 1.33 for k = 1 from the input on. The paper reports about
1.6; ports sweep once for every layer and rival. Three measured parts of a plain step stand first, so that the bound on
this machine is seen: where weight gradients are cheap, a sweep weighs more. A plain step need not go down to the
images, as the parts do, so that it is a little cheaper than their sum.

A step is forward, loss, backward, update, as `EndToEnd` makes it. Ways take turns within a round and a ratio is one of
medians over rounds, in CPU seconds of this process (on a GPU: clock seconds, synchronised). Images are noise.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from timing import DEVICE, medians, peak_bytes
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearance.losses import CrossEntropyLoss, DistanceSettings, LargeMarginLoss, Loss
from clearance.losses.large_margin import margin_violation
from clearance.models import Classifier, large_margin_cnn, resnet20
from clearance.tensors import LossTerms

STAGES = tuple(f"extractor.stage{stage}" for stage in (1, 2, 3))
BLOCKS = ("input", "extractor.block1", "extractor.block2")
TARGETS = {
    "cpu": {"k=1": 1.45, "k=9": 5.0, "memory": 1.25},
    "cuda": {"k=1": 1.40, "k=9": 2.5, "memory": 1.25},
}[DEVICE]


@dataclass(frozen=True)
class Sizes:
    """Images a batch and rounds."""

    batch: int = 64
    rounds: int = 30


class Step:
    """One way to train one network: a step on a batch, and what it costs."""

    def __init__(self, network: Classifier, loss: Loss, batch: tuple[Tensor, Tensor]) -> None:
        self.model, self.loss = network.to(DEVICE), loss.to(DEVICE)
        self.images, self.labels = batch
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5, momentum=0.9)

    def __call__(self) -> None:
        """One update."""
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self.model.outputs(self.images, self.loss.layers)
        self.loss(outputs, self.labels).total.backward()
        self.optimizer.step()
        self.loss.after_step(outputs, self.labels)


class Looped(Loss):
    """The same loss as ports compute it: a sweep of its own for every layer and rival."""

    def __init__(self, layers: Sequence[str], k: int) -> None:
        super().__init__()
        self.layers, self.k = tuple(layers), k

    def forward(self, outputs: Any, labels: Tensor) -> LossTerms:
        """Cross-entropy and the mean margin."""
        z = outputs.logits
        rivals = z.detach().scatter(1, labels[:, None], -torch.inf).topk(self.k, dim=1).indices
        total = cross_entropy(z, labels)
        for name in self.layers:
            short = []
            for rival in rivals.unbind(dim=1):
                gap = z.gather(1, labels[:, None])[:, 0] - z.gather(1, rival[:, None])[:, 0]
                (g,) = torch.autograd.grad(gap.sum(), outputs.activations[name], retain_graph=True)
                short.append(margin_violation(gap / (g.flatten(1).norm(dim=1) + 1e-6), 1.0))
            total = total + torch.stack(short).amax(dim=0).mean() / len(self.layers)
        return LossTerms({"margin": total})


def batch_of(sizes: Sizes, channels: int, side: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(sizes.batch, channels, side, side, generator=stream)
    return images.to(DEVICE), (torch.arange(sizes.batch) % 10).to(DEVICE)


def residual() -> Classifier:
    torch.manual_seed(0)
    return Classifier(resnet20(3, 32), nn.Linear(64, 10), 0.5, 0.25).to(DEVICE)


def line(name: str, ratio: float, milliseconds: float, target: str = "") -> None:
    print(f"{name:<58} {milliseconds:9.1f} {ratio:7.2f}  {target}", flush=True)


def parts(network: Classifier, images: Tensor, labels: Tensor, rounds: int) -> list[float]:
    """Medians of a forward pass, of gradients of activations down to the input, and of those of weights besides."""

    def forward() -> Tensor:
        return cross_entropy(network(images), labels)

    def data() -> None:
        outputs = network.outputs(images, ("input",))
        torch.autograd.grad(cross_entropy(outputs.logits, labels), outputs.activations["input"])

    def both() -> None:
        outputs = network.outputs(images, ("input",))
        wanted = [outputs.activations["input"], *network.parameters()]
        torch.autograd.grad(cross_entropy(outputs.logits, labels), wanted)

    f, fd, fdw = medians((forward, data, both), rounds, warm_up=2, device=DEVICE)
    return [f, fd - f, fdw - fd]


def tell_parts(name: str, measured: list[float], rivals: int) -> None:
    """What a plain step is made of, and the ratio below which no step with so many sweeps can be here."""
    f, d, w = measured
    print(
        f"{name}: forward {1e3 * f:.1f} ms, gradients of activations {1e3 * d:.1f}, of weights {1e3 * w:.1f};"
    )
    print(f"bound for k={rivals} on this machine: {1 + rivals * d / (f + d + w):.2f}")


def resnet(sizes: Sizes) -> None:
    """ResNet-20 at k = 1: over the cross-entropy step."""
    images, labels = batch_of(sizes, 3, 32)
    tell_parts("ResNet-20", parts(residual(), images, labels, sizes.rounds), 1)
    ways: dict[str, tuple[Loss, str]] = {
        "cross-entropy": (CrossEntropyLoss(), ""),
        "cross-entropy once more: this run's noise": (CrossEntropyLoss(), "1"),
        "k=1, input + 3 hidden layers": (LargeMarginLoss(("input", *STAGES)), f"<= {TARGETS['k=1']:.2f}"),
        "  the same, a sweep for every layer": (Looped(("input", *STAGES), 1), "(as ports do)"),
        "logits + penultimate layer": (LargeMarginLoss(("features", "logits")), "<= 1.03"),
        "k=1, upper half (stages 2 and 3)": (LargeMarginLoss(STAGES[1:]), "<= 1.22"),
        "lazy, every 4th step (a cycle of 4)": (LargeMarginLoss(("input", *STAGES), every=4), "<= 1.13"),
    }
    steps = {name: Step(residual(), loss, (images, labels)) for name, (loss, _) in ways.items()}
    lazy = steps["lazy, every 4th step (a cycle of 4)"]

    def cycle() -> None:
        for _ in range(4):
            lazy()

    actions = [cycle if step is lazy else step for step in steps.values()]
    found = medians(actions, sizes.rounds, warm_up=2, device=DEVICE)
    found[-1] /= 4
    for (name, (_, target)), took in zip(ways.items(), found, strict=True):
        line(name, took / found[0], 1e3 * took, target)


def rivals(sizes: Sizes) -> None:
    """MNIST's network, all layers, all nine rivals: over cross-entropy, and over a loop of layers and rivals."""
    images, labels = batch_of(sizes, 1, 28)

    def network() -> Classifier:
        torch.manual_seed(0)
        return Classifier(large_margin_cnn(1, 28), nn.Linear(512, 10), 0.1307, 0.3081).to(DEVICE)

    tell_parts("MNIST's network", parts(network(), images, labels, sizes.rounds), 9)
    losses = {
        "cross-entropy": CrossEntropyLoss(),
        "k=9, input + both blocks, one by one": LargeMarginLoss(
            BLOCKS, top_k=9, distance=DistanceSettings(sweeps="sequential")
        ),
        "k=9, input + both blocks, batched": LargeMarginLoss(
            BLOCKS, top_k=9, distance=DistanceSettings(sweeps="batched")
        ),
        "  the same, layers x rivals sweeps": Looped(BLOCKS, 9),
    }
    found = medians(
        [Step(network(), o, (images, labels)) for o in losses.values()],
        max(3, sizes.rounds // 4),
        warm_up=2,
        device=DEVICE,
    )
    for (name, _), took in zip(losses.items(), found, strict=True):
        line(name, took / found[0], 1e3 * took, f"<= {TARGETS['k=9']:.1f}" if name.startswith("k=9") else "")
    line("loop over the faster of the two", found[3] / min(found[1:3]), 1e3 * found[3], ">= 1.5")


def memory(sizes: Sizes) -> None:
    """Peak memory of a step at k = 1, input + 3 hidden layers."""
    batch = batch_of(sizes, 3, 32)
    losses = (CrossEntropyLoss(), LargeMarginLoss(("input", *STAGES)))
    plain, margin = (peak_bytes(Step(residual(), loss, batch), DEVICE) for loss in losses)
    print(
        f"{'peak memory of a step, MiB':<58} {margin / 2**20:9.1f} {margin / plain:7.2f}  <= {TARGETS['memory']:.2f}"
    )


GROUPS = {"resnet": resnet, "rivals": rivals, "memory": memory}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=GROUPS, help="one group of the table")
    parser.add_argument("--batch", type=int, default=64, help="images a step; 64 are few for a GPU")
    parser.add_argument(
        "--small", action="store_true", help="small batches, few rounds: only to see that it runs"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sizes = Sizes(batch=8, rounds=2) if options.small else Sizes(batch=options.batch)
    print(f"{DEVICE}, batch {sizes.batch}, medians of {sizes.rounds} rounds and fewer for the slow ways")
    print(f"{'what':<58} {'ms':>9} {'ratio':>7}  target")
    for name, group in GROUPS.items():
        if options.only in (None, name):
            group(sizes)


if __name__ == "__main__":
    main()
