"""``clearance train``: train one method once and keep the model."""

import sys
from dataclasses import dataclass
from pathlib import Path

from clearance.cli._options import OptionalCount, OptionalPath, OptionalText

FAILED = 1


@dataclass(frozen=True)
class TrainCommand:
    """Train one method under one seed, audit it, and keep the model. An interrupted run resumes.

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
        from clearance._files import check_folder
        from clearance.cli._console import Console
        from clearance.cli._options import chosen_recipe
        from clearance.cli._progress import listening
        from clearance.cli._tables import print_table
        from clearance.experiments.audit_plan import AuditPlan
        from clearance.experiments.build import build_data
        from clearance.experiments.grid import run_grid
        from clearance.experiments.provenance import report_of
        from clearance.experiments.run import RunPlan
        from clearance.report import Card

        console = Console()
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
        plan = RunPlan(recipe, self.method, self.seed)
        with listening(console, 1 + len(plan.sources)) as listener:
            (found,) = run_grid([plan], build_data(recipe), self.out, 1, listener)
        if not found.records:
            sys.stderr.write(f"clearance: {found.note.status if found.note else 'failed'}\n")
            sys.exit(FAILED)
        print_table(console, Card(report_of(recipe, [found], f"clearance train --method {self.method}")))
        folder = self.out / plan.folder
        for left in found.left_out:
            console.print(f"Audit {left.audit} failed: {left.reason}", soft_wrap=True)
        console.print(f"Run: {folder}", soft_wrap=True)
        console.print(f"In Python: clearance.load_model({str(folder)!r})", soft_wrap=True)
        if found.left_out:
            sys.exit(FAILED)
