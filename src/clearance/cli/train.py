"""``clearance train``: train one method once and keep the model."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clearance.cli._ending import FAILED
from clearance.cli._options import OptionalCount, OptionalPath, OptionalText


def is_launched() -> bool:
    """Whether torchrun, or another launcher with its variables, has started this process beside others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


@contextmanager
def joined_by_launcher() -> Iterator[bool]:
    """Join the processes that a launcher has started, while the block runs; whether this is the first of them.

    Raises:
        ValueError: If there are GPUs, but fewer than processes on this machine.
    """
    if not is_launched():
        yield True
        return
    import torch
    import torch.distributed as dist

    here, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if gpus and here >= gpus:
        raise ValueError(
            f"each process needs its own GPU; got {gpus} GPUs. Start {gpus} processes on this machine."
        )
    if gpus:
        torch.cuda.set_device(here)
    dist.init_process_group("nccl" if gpus else "gloo")
    try:
        yield dist.get_rank() == 0
        dist.barrier()
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class TrainCommand:
    """Train one method under one seed, audit it, and keep the model. An interrupted run resumes.

    On several GPUs, or processes: `torchrun --nproc-per-node 2 -m clearance train ...`. Each takes its share of every
    batch and of the audits' images, with one GPU each if there are GPUs.

    Args:
        method: A name from `clearance list`, or from the recipe file.
        dataset: A name from `clearance list`, folder:PATH or npz:PATH (default: digits).
        root: The folder with the dataset's files; datasets are never downloaded.
        size: Resize an image folder's short side to this many pixels and crop the centre.
        seed: Seed of first weights, batch order and all other random numbers.
        model: A name from `clearance list` (default: small-cnn, or that of the recipe file).
        epochs: Passes over the training images (default: those of the recipe).
        recipe: A YAML file with any of these settings, and more.
        out: The folder for runs; each gets its own subfolder.
    """

    method: str = "plain"
    dataset: OptionalText = None
    root: OptionalText = None
    size: OptionalCount = None
    seed: int = 0
    model: OptionalText = None
    epochs: OptionalCount = None
    recipe: OptionalPath = None
    out: Path = Path("clearance-runs")

    def run(self) -> None:
        """Train."""
        with joined_by_launcher() as first:
            self._run(first)

    def _run(self, first: bool) -> None:
        from clearance._files import check_folder
        from clearance.cli._console import Console
        from clearance.cli._options import chosen_recipe
        from clearance.cli._progress import listening
        from clearance.experiments.audit_plan import AuditPlan
        from clearance.experiments.build import build_data, check_draws
        from clearance.experiments.grid import run_grid, silent
        from clearance.experiments.provenance import report_of
        from clearance.experiments.run import RunPlan
        from clearance.experiments.saved import check_networks
        from clearance.report.terminal import first_text

        console = Console(quiet=not first)
        check_folder("out", self.out)
        recipe = chosen_recipe(
            self.recipe,
            self.dataset,
            (self.method,),
            keep_sources=True,
            root=self.root,
            size=self.size,
            model=self.model,
            epochs=self.epochs,
        )
        AuditPlan.of_recipe(recipe)  # a wrong setting, before any training
        plan, data = RunPlan(recipe, self.method, self.seed), build_data(recipe)
        check_draws(recipe, data, [self.seed])
        check_networks(recipe, data)
        engine = None if is_launched() else 1
        with listening(console, 1 + len(plan.sources)) as listener:
            (found,) = run_grid([plan], data, self.out, engine, listener if first else silent)
        if not found.records:
            sys.stderr.write(f"clearance: {found.note.status if found.note else 'failed'}\n")
            sys.exit(FAILED)
        report = report_of(recipe, [found], f"clearance train --method {self.method}")
        console.print(f"\n{first_text(report, console.width)}\n", soft_wrap=True)
        folder = self.out / plan.folder
        for left in found.left_out:
            console.print(f"Audit {left.audit} failed: {left.reason}", soft_wrap=True)
        console.print(f"Run: {folder}", soft_wrap=True)
        console.print(f"In Python: clearance.load_model({str(folder)!r})", soft_wrap=True)
        if found.left_out:
            sys.exit(FAILED)
