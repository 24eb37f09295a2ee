"""What an audit or a comparison hands back: the numbers, the pictures, and a page that shows itself."""

import itertools
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance.records.record import Record
from clearance.records.store import Report
from clearance.report.left_out import left_out_lines
from clearance.report.model_card import model_card
from clearance.report.over_seeds import rows_of
from clearance.report.page import framed, render_page, without_images, write_html, write_page
from clearance.report.terminal import first_text
from clearance.vocabulary import Exhibit, Measurement

_NOT_IN_NAMES = re.compile(
    r"[^A-Za-z0-9_.-]"
)  # of trackers: MLflow's, without the space, the colon and the slash


@dataclass(frozen=True, repr=False)
class Card:
    """The result of an audit of one network, or of a comparison of several methods.

    Args:
        report: Everything that was found.

    In a notebook it shows its page; printed, the first sentences of its page, or the table of methods.

    >>> found = Measurement("accuracy", "error", 0.02, "fraction", n=500, context={"split": "test"})
    >>> card = Card(Report({}, {}, "", "", records=(Record("digits", "plain", 0, found),)))
    >>> card.measurements[0].value
    0.02
    """

    report: Report

    @property
    def records(self) -> Sequence[Record]:
        """Every measurement with its dataset, method and seed."""
        return self.report.records

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Every measurement; `records` says whose each is."""
        return tuple(record.measurement for record in self.report.records)

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """Everything to look at; ``report.exhibits`` says whose each is."""
        return tuple(record.exhibit for record in self.report.exhibits)

    def table(self, audit: str, name: str) -> list[dict[str, Any]]:
        """An exhibit as rows, a dictionary for each, such as a list of images; empty if there is none.

        Args:
            audit: Name of the audit.
            name: Name of the exhibit.

        >>> from clearance.records import ExhibitRecord
        >>> columns = {"kind": ["exact"], "first image": ["a/1.png"]}
        >>> shown = Exhibit("duplicates", "duplicates", "table", columns, "Pairs.")
        >>> card = Card(Report({}, {}, "", "", exhibits=(ExhibitRecord("digits", "plain", 0, shown),)))
        >>> card.table("duplicates", "duplicates")
        [{'kind': 'exact', 'first image': 'a/1.png'}]
        """
        found = [
            one for one in self.report.exhibits if (one.exhibit.audit, one.exhibit.name) == (audit, name)
        ]
        return [row for one in found for row in rows_of(one)]

    def flat(self) -> dict[str, float]:
        """Every number by a name that trackers of experiments accept (MLflow, Weights & Biases, TensorBoard).

        Values are means over seeds. Names are ``audit.name.setting-value...``, behind ``dataset/`` where there are
        several datasets and behind ``method/`` where there are several methods. Other characters than letters, digits,
        ``_``, ``-`` and ``.`` become ``_``; if two names are then equal, the second ends in ``.2``.

        >>> found = Measurement("accuracy", "error", 0.02, "fraction", n=500, context={"split": "test"})
        >>> Card(Report({}, {}, "", "", records=(Record("digits", "plain", 0, found),))).flat()
        {'accuracy.error.split-test': 0.02}
        """
        rows = [row for row in self.report.summary if row.kind == "mean"]
        several = {field: len({getattr(row, field) for row in rows}) > 1 for field in ("dataset", "method")}
        named: dict[str, float] = {}
        for row in rows:
            groups = [getattr(row, field) for field, needed in several.items() if needed]
            settings = [f"{key}-{value}" for key, value in row.context.items()]
            words = [*groups, ".".join([row.audit, row.name, *settings])]
            name = "/".join(_NOT_IN_NAMES.sub("_", word).strip(".") or "_" for word in words)
            places = (f"{name}.{count}" for count in itertools.count(2))
            named[name if name not in named else next(each for each in places if each not in named)] = (
                row.value
            )
        return named

    def log_to(self, run: Any, step: int = 0) -> None:
        """Send the numbers of `flat`, and the page where that is possible, to a tracker of experiments.

        Args:
            run: The module ``mlflow`` (its active run) or one of its runs, a Weights & Biases run, or TensorBoard's
                ``SummaryWriter``, which takes no page.
            step: The step at which they are shown; Weights & Biases has it as ``clearance_step``, so that it may lie
                below the run's own.

        Raises:
            TypeError: If `run` is something else.

        >>> class Writer:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, value, step)
        >>> found = Measurement("accuracy", "error", 0.02, "fraction", n=500, context={"split": "test"})
        >>> Card(Report({}, {}, "", "", records=(Record("digits", "plain", 0, found),))).log_to(Writer(), step=3)
        accuracy.error.split-test 0.02 3
        """
        of_mlflow = type(run).__module__.partition(".")[0] == "mlflow"
        if of_mlflow or hasattr(run, "log_metrics"):
            mlflow, named = (sys.modules["mlflow"], {"run_id": run.info.run_id}) if of_mlflow else (run, {})
            mlflow.log_metrics(self.flat(), step=step, **named)
            mlflow.log_text(self.to_html(), f"clearance/step-{step}.html", **named)
        elif hasattr(run, "add_scalar"):
            for name, value in self.flat().items():
                run.add_scalar(name, value, step)
        elif hasattr(run, "log"):
            # not as its `step`: what has one below the run's own is dropped
            numbers: dict[str, Any] = {**self.flat(), "clearance_step": step}
            if "wandb" in sys.modules:
                for name in self.flat():
                    run.define_metric(name, step_metric="clearance_step")
                numbers["clearance"] = sys.modules["wandb"].Html(self.to_html())
            run.log(numbers)
        else:
            raise TypeError(
                "`run` must be mlflow or a run of it, a Weights & Biases run, or TensorBoard's SummaryWriter; got "
                f"{type(run).__name__}. For another tracker send card.flat()."
            )

    def to_json(self) -> str:
        """The text of ``report.json``: settings, measurements and what is derived from them."""
        return self.report.to_json()

    def to_markdown(self) -> str:
        """The section ``Evaluation`` of a model card: the findings with their intervals, or the table of methods.

        It has the headings of the Hugging Face Hub's template, and belongs into the model's ``README.md``.

        >>> found = Measurement("accuracy", "error", 0.02, "fraction", n=500, context={"split": "test"})
        >>> card = Card(Report({}, {}, "", "", records=(Record("digits", "plain", 0, found),)))
        >>> "#### plain training on digits" in card.to_markdown()
        True
        """
        return model_card(self.report)

    def to_html(self) -> str:
        """The page, complete in itself."""
        return render_page(self.report)

    def save(self, path: str | os.PathLike[str], *, images: bool = True) -> Path:
        """Write the page as one self-contained HTML file, and return its path.

        The points of its pictures are in the exhibits; `save_folder` writes those too.

        Args:
            path: The file.
            images: Whether it shows images of the data; without them it can be shared.

        Raises:
            ValueError: If it is to be called ``.json``.
        """
        if Path(path).suffix == ".json":
            raise ValueError(
                f"`save` writes a page; got {Path(path).name}. Write {Path(path).stem}.html, or `save_folder`, which "
                "writes report.json too."
            )
        return write_html(path, render_page(self.report if images else without_images(self.report)))

    def save_folder(self, directory: str | os.PathLike[str]) -> Path:
        """Write page, ``report.json`` and exhibits into a folder, and return the page's path.

        Of one network, ``share.html`` is the page without images of the data.
        """
        return write_page(self.report, directory)

    def __repr__(self) -> str:
        return "\n".join([first_text(self.report), *left_out_lines(self.report.recipe)])

    def _repr_html_(self) -> str:
        return framed(self.to_html(), "Clearance report")
