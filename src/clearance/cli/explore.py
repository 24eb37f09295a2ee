"""``clearance explore``: an interactive page with sliders that tilt decision boundaries."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from clearance.cli._options import OptionalCount, OptionalPath, OptionalText

if TYPE_CHECKING:
    from clearance.explore.scene import Scene


@dataclass(frozen=True)
class ExploreCommand:
    """Write one interactive page: how a penalty on the weights tilts a decision boundary, and what that costs.

    Args:
        dataset: A name from `clearance list`, folder:PATH or npz:PATH (default: digits).
        classes: Two names separated by a comma, or all for every pair (default: a pair that is hard to separate).
        root: The folder with the dataset's files; datasets are never downloaded.
        size: Resize an image folder's short side to this many pixels and crop the centre.
        run_dir: The directory of a trained run: its features (the input of the last layer) replace pixels.
        per_class: Use at most this many training images and this many test images of each class (the first ones).
        out: The file to write.
        report: A folder for a printable report of one pair: a page of figures, and its records.
    """

    dataset: OptionalText = None
    classes: OptionalText = None
    root: OptionalText = None
    size: OptionalCount = None
    run_dir: Annotated[OptionalPath, tyro.conf.arg(name="run")] = None
    per_class: int = 3000
    out: Path = Path("clearance-explore.html")
    report: OptionalPath = None

    def run(self) -> None:
        """Fit and write."""
        from clearance._files import check_report_folder
        from clearance.cli._console import Console, plain
        from clearance.cli._options import check_file
        from clearance.explore import write_explorer
        from clearance.explore.machines import all_machines
        from clearance.explore.page import check_size, packed_classes

        check_file("--out", self.out)
        if self.report is not None:
            check_report_folder("report", self.report)
        scene = self._scene()
        if self.report is not None and len(scene.classes) > 2:
            raise ValueError("--report needs one pair of classes; got all. Name two with --classes.")
        check_size(scene, packed_classes(scene))
        console = Console()
        with console.status("fitting") as status:

            def show(done: int, pairs: int, pair: str) -> None:
                line = f"{done + 1}/{pairs}  {pair}"
                if console.is_terminal:
                    status.update(plain(line))
                else:
                    console.print(line)

            machines = all_machines(scene, show)
        page = write_explorer(scene, self.out, machines, command=self._command())
        size = page.stat().st_size / 1e6
        console.print(f"Page: {page} ({size:.1f} MB)", soft_wrap=True)
        if self.report is not None:
            from clearance.experiments.explore import explored_report
            from clearance.report import write_page

            paper = write_page(explored_report(scene, machines[0], self._command()), self.report)
            console.print(f"Report: {paper}", soft_wrap=True)

    def _scene(self) -> "Scene":
        from clearance.cli._options import split_names
        from clearance.experiments.explore import explored_dataset, explored_run

        classes = split_names(self.classes)
        if self.run_dir is None:
            return explored_dataset(
                self.dataset or "digits", classes, root=self.root, size=self.size, per_class=self.per_class
            )
        if self.dataset is not None or self.size is not None:
            raise ValueError("--run already sets dataset and size; leave out --dataset and --size.")
        return explored_run(self.run_dir, classes, root=self.root, per_class=self.per_class)

    def _command(self) -> str:
        """The command for the page, with names instead of this machine's folders."""
        from clearance.experiments.provenance import without_folder

        given = {
            "dataset": self.dataset and without_folder(self.dataset),
            "classes": self.classes,
            "root": self.root and "ROOT",
            "size": self.size,
            "run": self.run_dir and self.run_dir.name,
            "per-class": self.per_class if self.per_class != type(self).per_class else None,
        }
        words = [word for name, value in given.items() if value for word in (f"--{name}", str(value))]
        return shlex.join(["clearance", "explore", *words])
