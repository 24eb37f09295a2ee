"""What a study needs in addition to the public names: the parts of a comparison, taken one at a time.

:func:`clearance.compare` answers the common question in one call. A study that asks another one builds on the same
parts: it makes recipes, runs their plans, measures something of its own on what was trained, and writes a report.
The studies in ``papers/`` of a checkout use nothing of the library but its public names and this list.

*Settings*: `Recipe` (a comparison as data), `from_tree` and `to_tree` (plain values in, plain values out),
`identifier` (a short name that changes with the settings), `describe` (any object as such settings).

*Runs*: `RunPlan` (one method under one seed), `plans_of` (all of a recipe), `RunData` and `build_data` (their images),
`run_grid` (run them, or read them back), `Engine` (where), `Listener` and `silent` (called as runs proceed),
`RunFindings` (what each left), `load_run` and `read_result` (a finished run), `with_context` (findings with one more
setting in their context),
`FIRST_SOURCE` (the seed from which networks that attacks are made on count).

*Searching settings*: `search_settings`, `Trial`, `best_trial`, `at_edge`, `FACTORS`.

*Parts of a run*: `build_loss`, `AuditPlan`, `training_findings`, `fixed_images`, `draw_samples`,
`draw_classes`, `open_folder` (a folder of pictures), `change_sheet`, `feature_unit`, `pair_head` (the head of two
classes in closed form), `calibrated_temperature` (that makes a network equally sure), `evaluating`,
`with_channels_last`, `one_thread`, `Processes` (an engine on this machine), `on_processes` (an engine,
or as many processes), `Progress` (of a training run).

*Random numbers*: `derived_seed` and `generator`: one seed, many independent streams, each known by its name.

*Records*: `Record`, `ExhibitRecord`, `RunNote`, `Report`, `versions_here`, `report_of` and `report_with` (findings as a
report), `SummaryRow`, `encode` and `decode` (plain values that JSON can hold, and back), `DESCRIPTIVE` (context that
identifies no number), `markdown_table` (rows as a table), `Outcome`, `Better`, `Scalar`.

*Verdicts*: `summarise` (a mean over seeds), `compare_seeds` (two methods paired over seeds), `Comparison`,
`SeedSummary`, `holm`, `share_of` (of images, with its interval), `LEVEL`.

*Pictures in the report's style*: `page_figure`, `style_axes`, `series`, `marker`, `draw_legend`, `label_logarithmic`,
`plain_number`, `contact_sheet`, `as_svg`, `standalone_svg`, the colours `INK`, `MUTED`, `GRID`, `PAPER`, `SERIES` and
the `MARKERS`; `printed` and `THIN` (a number with its unit, as the report prints it).

*Checks and files*: `check_choice`, `check_count`, `check_positive`, `check_non_negative`, `check_report_folder`,
`write_bytes`.

*A command of its own*: `one_line_errors` (how it ends), `Console` (whose output is text, never markup),
`check_engine_options`, `chosen_engine` and `engine_in_words` (for `--engine` and what goes with it), `listening`
(progress on a terminal, as a listener), `Processes` (an executor of processes with one thread each).

Importing this room imports torch. Its names may change between versions; those of :mod:`clearance` do not without a
word in the changelog.

>>> compare_seeds({0: 0.10, 1: 0.11, 2: 0.12}, {0: 0.20, 1: 0.22, 2: 0.21}, better="lower").verdict
'better'
"""

from clearance._checks import check_choice, check_count, check_non_negative, check_positive
from clearance._describe import describe
from clearance._files import check_report_folder, write_bytes
from clearance._rng import derived_seed, generator
from clearance.audits._audit import share_of
from clearance.audits._change_sheet import change_sheet
from clearance.audits._samples import fixed_images
from clearance.cli._console import Console
from clearance.cli._ending import one_line_errors
from clearance.cli._options import check_engine_options, chosen_engine
from clearance.cli._options import places as engine_in_words
from clearance.cli._progress import listening
from clearance.data.folder import open_folder
from clearance.data.subsets import draw_classes, draw_samples
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import RunData, build_data, build_loss
from clearance.experiments.engines import Processes, on_processes, one_thread
from clearance.experiments.grid import Engine, Listener, plans_of, run_grid, silent
from clearance.experiments.provenance import report_of, report_with, versions_here
from clearance.experiments.recipe import Recipe, from_tree, identifier, to_tree
from clearance.experiments.run import FIRST_SOURCE, RunFindings, RunPlan, training_findings
from clearance.experiments.saved import load_run
from clearance.experiments.search import FACTORS, Trial, at_edge, best_trial, search_settings
from clearance.experiments.sweep import with_context
from clearance.heads.ridge import pair_head
from clearance.heads.scale import feature_unit
from clearance.linear.temperature import calibrated_temperature
from clearance.models._running import evaluating, with_channels_last
from clearance.records import ExhibitRecord, Record, Report, RunNote, SummaryRow
from clearance.records.encoding import decode, encode
from clearance.records.markdown import markdown_table
from clearance.records.record import DESCRIPTIVE
from clearance.records.summary import LEVEL, Comparison, SeedSummary, compare_seeds, holm, summarise
from clearance.report.drawing import (
    contact_sheet,
    draw_legend,
    label_logarithmic,
    page_figure,
    plain_number,
    style_axes,
)
from clearance.report.numbers import THIN, printed
from clearance.report.svg import (
    GRID,
    INK,
    MARKERS,
    MUTED,
    PAPER,
    SERIES,
    as_svg,
    marker,
    series,
    standalone_svg,
)
from clearance.runs import read_result
from clearance.training.fit import Progress
from clearance.vocabulary import Better, Outcome, Scalar

__all__ = [
    "DESCRIPTIVE",
    "FACTORS",
    "FIRST_SOURCE",
    "GRID",
    "INK",
    "LEVEL",
    "MARKERS",
    "MUTED",
    "PAPER",
    "SERIES",
    "THIN",
    "AuditPlan",
    "Better",
    "Comparison",
    "Console",
    "Engine",
    "ExhibitRecord",
    "Listener",
    "Outcome",
    "Processes",
    "Progress",
    "Recipe",
    "Record",
    "Report",
    "RunData",
    "RunFindings",
    "RunNote",
    "RunPlan",
    "Scalar",
    "SeedSummary",
    "SummaryRow",
    "Trial",
    "as_svg",
    "at_edge",
    "best_trial",
    "build_data",
    "build_loss",
    "calibrated_temperature",
    "change_sheet",
    "check_choice",
    "check_count",
    "check_engine_options",
    "check_non_negative",
    "check_positive",
    "check_report_folder",
    "chosen_engine",
    "compare_seeds",
    "contact_sheet",
    "decode",
    "derived_seed",
    "describe",
    "draw_classes",
    "draw_legend",
    "draw_samples",
    "encode",
    "engine_in_words",
    "evaluating",
    "feature_unit",
    "fixed_images",
    "from_tree",
    "generator",
    "holm",
    "identifier",
    "label_logarithmic",
    "listening",
    "load_run",
    "markdown_table",
    "marker",
    "on_processes",
    "one_line_errors",
    "one_thread",
    "open_folder",
    "page_figure",
    "pair_head",
    "plain_number",
    "plans_of",
    "printed",
    "read_result",
    "report_of",
    "report_with",
    "run_grid",
    "search_settings",
    "series",
    "share_of",
    "silent",
    "standalone_svg",
    "style_axes",
    "summarise",
    "to_tree",
    "training_findings",
    "versions_here",
    "with_channels_last",
    "with_context",
    "write_bytes",
]
