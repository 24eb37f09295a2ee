"""What a page needs from a report about one dataset, looked up only in the summary."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord, RunNote
from clearance.records.store import Report
from clearance.records.summary import LEVEL
from clearance.report.names import NO_NETWORK, class_noun
from clearance.report.numbers import data

FEW = "co_adaptation"  # the audit that retrains the last layers on a few images


@dataclass(frozen=True)
class Findings:
    """The contents of a report about one dataset.

    Args:
        report: The report.
        dataset: Which of its datasets.
    """

    report: Report
    dataset: str

    def rows(self, kind: str, audit: str, name: str, **wanted: Any) -> list[SummaryRow]:
        """The summary's rows of a quantity; a name in `wanted` is a field of the row or a setting."""
        return [
            row
            for row in self.report.summary
            if (row.kind, row.dataset, row.audit, row.name) == (kind, self.dataset, audit, name)
            and all(_get(row, key) == value for key, value in wanted.items())
        ]

    def row(self, kind: str, audit: str, name: str, **wanted: Any) -> SummaryRow | None:
        """The first of `rows`, if there is one."""
        return next(iter(self.rows(kind, audit, name, **wanted)), None)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Every method that was trained or measured, in the report's order; the first is the baseline."""
        only_pixels = set(self.report.methods) - {note.method for note in self.report.runs}
        for record in self.report.records:
            if record.dataset == self.dataset and record.measurement.context.get("head") not in NO_NETWORK:
                only_pixels.discard(record.method)
        return tuple(method for method in self.report.methods if method not in only_pixels)

    @property
    def thing(self) -> str:
        """What a line of a table is: a method, unless the report calls it something else (setting ``compared``)."""
        return str(self.report.recipe.get("compared", "method"))

    @property
    def baseline(self) -> str:
        """The method that the others are compared with."""
        return self.methods[0]

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """What stood in for the last layers, in the order measured, without those that need no network."""
        found = (row.context.get("head") for row in self.rows("mean", FEW, "error"))
        return tuple(
            dict.fromkeys(str(head) for head in found if head is not None and head not in NO_NETWORK)
        )

    @cached_property
    def head(self) -> str | None:
        """The one that the first screen is about: the paper's, else the first."""
        return "retrained" if "retrained" in self.heads else next(iter(self.heads), None)

    @cached_property
    def fewest(self) -> int | None:
        """The smallest number of images that the last layers were rebuilt from."""
        rows = self.rows("mean", FEW, "error", head=self.head) if self.head else []
        counts = [int(row.context["samples"]) for row in rows if "samples" in row.context]
        return min(counts, default=None)

    @cached_property
    def images(self) -> int | None:
        """How many test images the networks' own errors were counted on."""
        row = self.row("mean", "accuracy", "error", split="test")
        return row.n if row else None

    @cached_property
    def seeds(self) -> int:
        """How many seeds the fullest mean was taken over."""
        return max((row.seeds for row in self.report.summary if row.dataset == self.dataset), default=0)

    @cached_property
    def classes(self) -> int | None:
        """How many classes the pictures show; None where there is no labelled picture."""
        for record in self.exhibits("class_scatter", "features"):
            return len(set(record.exhibit.columns.get("label", ()))) or None
        return None

    @property
    def few(self) -> Markup:
        """From how little the last layers were rebuilt: "one image per class", or how many images.

        It is one per class where a picture shows as many classes; without a picture, where the recipe says so
        (one is the audit's default).
        """
        described = [one for one in self.report.recipe.get("audits", ()) if isinstance(one, Mapping)]
        given = [one["per_class"] for one in described if one.get("type", "").endswith(".CoAdaptation")]
        asked = (
            given[0]
            if given
            else self.report.recipe.get("audit_settings", {}).get(FEW, {}).get("per_class", [1])
        )
        if self.classes == self.fewest or (self.classes is None and asked[0] == 1):
            return Markup("one image per {}").format(class_noun(self.dataset))
        return Markup("{} images").format(data(self.fewest, "count"))

    def own_error(self, method: str) -> SummaryRow | None:
        """Test error with the last layers that the network was trained with."""
        return self.row("mean", "accuracy", "error", method=method, split="test")

    def few_error(self, method: str, head: str | None = None) -> SummaryRow | None:
        """Test error with last layers that were rebuilt from the fewest images."""
        wanted = {"method": method, "head": head or self.head, "samples": self.fewest}
        return self.row("mean", FEW, "error", **wanted)

    def compared(self, method: str, head: str | None = None) -> SummaryRow | None:
        """`few_error` of a method minus the baseline's."""
        wanted = {"method": method, "head": head or self.head, "samples": self.fewest}
        return self.row("difference", FEW, "error", against=self.baseline, **wanted)

    def rivals(self) -> list[SummaryRow]:
        """The method with the lowest `few_error` against every other one."""
        return self.rows("rival", FEW, "error", head=self.head, samples=self.fewest)

    @cached_property
    def failures(self) -> tuple[RunNote, ...]:
        """The runs that did not end as asked."""
        return tuple(note for note in self.report.runs if not note.good)

    def exhibits(self, audit: str | None = None, name: str | None = None) -> list[ExhibitRecord]:
        """The exhibits of this dataset, of one audit and name where given."""
        return [
            record
            for record in self.report.exhibits
            if record.dataset == self.dataset
            and audit in (None, record.exhibit.audit)
            and name in (None, record.exhibit.name)
        ]


def claimed(row: SummaryRow | None) -> str:
    """The verdict that a sentence may claim: `row`'s own, unless the adjusted p value takes it back.

    >>> claimed(None)
    'inconclusive'
    """
    if row is None or row.verdict is None or row.adjusted is None or row.adjusted >= LEVEL:
        return "inconclusive"
    return row.verdict


def datasets(report: Report) -> tuple[str, ...]:
    """Names of the datasets, in the order in which they were measured."""
    return tuple(dict.fromkeys(record.dataset for record in report.records))


def _get(row: SummaryRow, key: str) -> Any:
    return row.context.get(key) if key not in ("method", "against") else getattr(row, key)


PROPOSED = "foca"


def reference(findings: Findings) -> str:
    """The method that the paper proposes, where it took part; else the first.

    >>> from clearance.records import Report, RunNote
    >>> from clearance.vocabulary import Outcome
    >>> runs = tuple(RunNote(name, 0, Outcome.FINISHED, "") for name in ("plain", "foca"))
    >>> reference(Findings(Report({}, {}, "", "", runs=runs), "digits"))
    'foca'
    """
    return PROPOSED if PROPOSED in findings.methods else next(iter(findings.methods), "")
