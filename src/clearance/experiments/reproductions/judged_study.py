"""A study that a paper's claims are judged on: its command, its verdicts, and its ledger."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearance._files import write_bytes
from clearance.experiments.papers import paper_claims
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import without_data
from clearance.experiments.reproduction_ledger import Ledger, reproduce_command
from clearance.experiments.study_request import StudyRequest
from clearance.records import Record, Report
from clearance.records.claims import Judgement, judge
from clearance.report.numbers import THIN


@dataclass(frozen=True)
class JudgedStudy:
    """A study of a paper on one dataset, or several that are run as one.

    Args:
        paper: Its name in the catalogue.
        names: Of the studies, as the paper's claims call them; the first is what the command runs.
        dataset: What they are on.
    """

    paper: str
    names: tuple[str, ...]
    dataset: str

    def command(self, seeds: int | None = None) -> str:
        """What makes the ledger again.

        >>> JudgedStudy("wan-2018", ("fgsm",), "digits").command(5)
        'clearance reproduce wan-2018 --only fgsm --dataset digits --seeds 5'
        """
        return reproduce_command(self.paper, self.dataset, seeds, only=self.names[0])

    def judgements(self, records: Sequence[Record]) -> tuple[Judgement, ...]:
        """The claims of these studies judged on records, every other one "not run"."""
        claims = paper_claims(self.paper)
        mine = dataclasses.replace(claims, claims=tuple(c for c in claims.claims if c.study in self.names))
        found = {j.claim.id: j for j in judge(mine, records, self.dataset)}
        # on no records every other claim says by itself whether it is about another dataset
        rest = {j.claim.id: self._elsewhere(j) for j in judge(claims, [], self.dataset)}
        return tuple(found.get(claim.id, rest[claim.id]) for claim in claims.claims)

    def _elsewhere(self, judgement: Judgement) -> Judgement:
        """A claim of another study: what it rests on may well have been measured here, but is judged there."""
        claim = judgement.claim
        here = self.dataset in (*claim.datasets, *claim.also)
        if judgement.verdict != "not run" or not claim.study or not here:
            return judgement
        return dataclasses.replace(judgement, reason=f"judged by --only {claim.study}", outcomes=())

    def without_data(self, recipe: Recipe, request: StudyRequest) -> Path:
        """The ledger that says that nothing was run; its path."""
        claims, command = paper_claims(self.paper), self.command(request.seeds)
        return without_data(claims, recipe, command, request.out).ledger

    def write_ledger(self, report: Report, sections: Sequence[str], out: Path) -> Path:
        """``ledger.json``, and ``ledger.md`` with sections of the study's own after the verdicts; the latter's path.

        Args:
            report: Of this study.
            sections: Markdown; empty ones are passed over.
            out: The folder.
        """
        ledger = Ledger(paper_claims(self.paper), self.dataset, self.judgements(report.records), report)
        path = ledger.save(out)
        text = "\n\n".join(part.strip("\n") for part in (ledger.to_markdown(), *sections) if part)
        write_bytes(path, f"{text}\n".replace(THIN, " ").encode())
        return path
