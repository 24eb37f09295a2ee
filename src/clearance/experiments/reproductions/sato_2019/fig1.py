"""Fig. 1: on two moons, features of joint training and of FOCA, with linear and with multi-layer heads.

The paper shows a picture and no number. Here every panel is trained under five seeds and measured, and what
had been guessed of such a toy beforehand is held against the medians.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from clearance._files import write_bytes
from clearance.experiments.grid import Listener
from clearance.experiments.provenance import report_with
from clearance.experiments.reproductions.sato_2019.fig1_guesses import PAIRS, times_smaller, values_of
from clearance.experiments.reproductions.sato_2019.fig1_ledger import write_ledger
from clearance.experiments.reproductions.sato_2019.fig1_measures import toy_findings
from clearance.experiments.reproductions.sato_2019.fig1_picture import picture
from clearance.experiments.reproductions.sato_2019.fig1_plane import panel, reach_of
from clearance.experiments.reproductions.sato_2019.fig1_runs import DATASET, ToyRun, trained_runs
from clearance.experiments.reproductions.sato_2019.fig1_toy import VARIANTS, ToySettings
from clearance.experiments.run import RunFindings, training_findings
from clearance.experiments.study_request import StudyRequest
from clearance.records import ExhibitRecord, Record, Report, RunNote
from clearance.report.numbers import printed
from clearance.report.paper_figure import as_png

SEEDS = 5
COMMAND = "clearance reproduce sato-2019 --only fig1"
PICTURE = "fig1.png"
TITLE = (
    "Two moons in feature space. The unit is the distance between the class means.\n"
    "Class extent with FOCA: {:.2g} × (linear heads) and {:.2g} × (MLP heads) that of joint training,\n"
    "in the median over seeds; each panel is the seed nearest its median."
)
ROOM = 1.08  # of the square that is shown, around the outermost point


def run(request: StudyRequest) -> Path:
    """Run the study, write its ledger and its picture; all in this process, as it takes minutes.

    Args:
        request: What was asked for. Seeds are runs of each panel, 5 by default.
    """
    return study(ToySettings(), request.seeds_or(SEEDS), request.out, request.listener)


def study(settings: ToySettings, seeds: int, out: Path, listener: Listener) -> Path:
    """The same with settings of the caller's own; the path of ``ledger.md``."""
    runs = trained_runs(settings, seeds, out / "runs", listener)
    found = [_findings(run) for run in runs]
    shown = shown_runs(runs, [record for one in found for record in one.records])
    found.append(RunFindings(None, (), _exhibits(shown, settings)))
    told = {"dataset": DATASET, "seeds": seeds, "toy": dataclasses.asdict(settings)}
    report = report_with(told, found, COMMAND if seeds == SEEDS else f"{COMMAND} --seeds {seeds}")
    report.save(out)
    write_bytes(out / PICTURE, as_png(picture_of(report)))
    return write_ledger(report, out, PICTURE)


def shown_runs(runs: Sequence[ToyRun], records: Sequence[Record]) -> list[ToyRun]:
    """For each variant the finished run whose ratio is nearest the median of all: no panel is picked by its looks.

    The median counts runs that did not finish too, as the ledger does. A variant of which none finished is left
    out.
    """
    shown = []
    for name in VARIANTS:
        between = values_of(records, name, "within_between")
        good = [run for run in runs if run.variant == name and run.result.status.good]
        if good:
            middle = statistics.median(between.values())
            shown.append(min(good, key=lambda run: abs(between[run.seed] - middle)))
    return shown


def picture_of(report: Report) -> Figure:
    """The picture, from the report alone."""
    panels = {}
    for name in VARIANTS:
        shown = {e.exhibit.name: e for e in report.exhibits if e.method == name}
        if shown:
            seed = shown["features"].seed
            assert seed is not None
            between = values_of(report.records, name, "within_between")[seed]
            line = f"class extent {printed(between, 'ratio')} of the distance (seed {seed})"
            panels[name] = (line, shown["features"].exhibit.columns, shown["outputs"].exhibit.columns)
    shares = [1 / statistics.median(times_smaller(report.records, head).values()) for head in PAIRS]
    return picture(panels, TITLE.format(*shares))


def _findings(run: ToyRun) -> RunFindings:
    note = RunNote(run.variant, run.seed, run.result.status.outcome, str(run.result.status))
    measured = toy_findings(run).measurements + training_findings(run.result).measurements
    records = tuple(Record(DATASET, run.variant, run.seed, measurement) for measurement in measured)
    return RunFindings(note, records, ())


def _exhibits(shown: Sequence[ToyRun], settings: ToySettings) -> tuple[ExhibitRecord, ...]:
    reach = ROOM * max((reach_of(run) for run in shown), default=1.0)
    return tuple(
        ExhibitRecord(DATASET, run.variant, run.seed, exhibit)
        for run in shown
        for exhibit in panel(run, settings, reach)
    )
