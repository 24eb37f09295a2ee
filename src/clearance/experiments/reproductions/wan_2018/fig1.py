"""Fig. 1 and 2: features in the plane for five losses, the likelihood that L-GM learned, and the regions of its margin.

The paper shows training images of MNIST. Every panel here is the network of seed 0; further seeds are for the claim.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from clearance._files import write_bytes
from clearance.data.samples import draw_at_most
from clearance.experiments.build import RunData
from clearance.experiments.grid import plans_of
from clearance.experiments.provenance import report_of
from clearance.experiments.reproduce import NoDataError, data_if_there
from clearance.experiments.reproduction_ledger import seeds_in_words
from clearance.experiments.reproductions.study_ledger import Quantity, provenance, save, table
from clearance.experiments.reproductions.wan_2018.fig1_picture import embedding_picture
from clearance.experiments.reproductions.wan_2018.margin_picture import margin_picture
from clearance.experiments.reproductions.wan_2018.margin_regions import gap_table
from clearance.experiments.reproductions.wan_2018.plane import AUDIT, likelihood_panel, panel, plane_numbers
from clearance.experiments.reproductions.wan_2018.protocol import (
    BASELINE,
    PROTOCOLS,
    plane_recipe,
    plane_scaled,
)
from clearance.experiments.reproductions.wan_2018.study import judged_study
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.saved import load_model
from clearance.experiments.study_request import StudyRequest
from clearance.records import ExhibitRecord, Record, Report
from clearance.report.standalone import standalone_svg
from clearance.vocabulary import Exhibit, Outcome

STUDY, EMBEDDING, MARGINS = "fig1", "fig1.svg", "fig2.svg"
WITH_LIKELIHOOD = "lgm"
SHOWN_SEED = 0
ROUNDNESS_IMAGES = 10_000  # of the training images, at most; as many as MNIST's test set has
ROWS = [
    Quantity("test error, two features", "accuracy", context={"split": "test"}),
    Quantity(
        "roundness of classes, training images", AUDIT, "roundness", "ratio", {"split": "train"}, "higher"
    ),
    Quantity("roundness of classes, test images", AUDIT, "roundness", "ratio", {"split": "test"}, "higher"),
]


def run(request: StudyRequest) -> Path:
    """Train networks of two features, draw both pictures, and write the ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, 1 by default: the pictures show the first, but a
            verdict needs five.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    dataset = request.dataset
    recipe = plane_recipe(dataset, request.root, request.seeds)
    if (data := data_if_there(recipe)) is None:
        raise NoDataError(f"the pictures need the files of {dataset}; give their folder with --root.")
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    measured = [_measured(plan, one, data, request.runs) for plan, one in zip(plans, found, strict=True)]
    report = report_of(recipe, measured, judged_study(STUDY, dataset).command(request.seeds))
    report.save(request.out)
    return write_ledger(report, dataset, request.out)


def write_ledger(report: Report, dataset: str, out: Path) -> Path:
    """Both pictures, ``ledger.md`` and ``ledger.json`` of a report of this study; the path of ``ledger.md``."""
    shown = panels_of(report)
    drawn = embedding_picture(shown, report.methods, WITH_LIKELIHOOD, errors_of(report))
    about = "Features of training images in the plane, one panel for each loss, and the likelihood that L-GM learned."
    write_bytes(out / EMBEDDING, standalone_svg(drawn, STUDY, about).encode())
    regions = "Where a margin of L-GM lets a sample count as right, for alpha 0, 0.1, 0.3 and 1."
    write_bytes(out / MARGINS, standalone_svg(margin_picture(), "fig2", regions).encode())
    claim = next(j for j in judged_study(STUDY, dataset).judgements(report.records) if j.claim.study == STUDY)
    count = len({record.seed for record in report.records})
    lines = [
        f"# wan-2018: features in the plane (Fig. 1, claim {claim.claim.id}), on {dataset}",
        provenance(report),
        plane_scaled(dataset),
        f"![{about}]({EMBEDDING})",
        f"Every panel is seed {SHOWN_SEED}. Digits stand at the mean of each class over all training images, rings at "
        "the means that a mixture learned. Points are a class-balanced part of the training images.",
        f"{claim.claim.id}: {claim.claim.words} **{claim.verdict}**{f' ({claim.reason})' if claim.reason else ''}. "
        f"{claim.claim.note}",
        f"Mean over {seeds_in_words(count)} with the 95 % t interval, in brackets the verdict against softmax. "
        f"Roundness is measured on at most {ROUNDNESS_IMAGES:,} training images, class-balanced, and all test images.",
        table(report, ROWS, report.methods, BASELINE),
        "## The margin's regions (Fig. 2)",
        f"![{regions}]({MARGINS})",
        "Two classes with variances of 1, in closed form; all lengths in units of the distance between their means. "
        "For alpha above 0 each class's region is a ball: training holds it together without a likelihood, too.",
        gap_table(),
    ]
    return save(report, "\n\n".join(lines), ROWS, (BASELINE,), out, claim=claim.to_json())


def panels_of(report: Report) -> Mapping[str, Mapping[str, Exhibit]]:
    """For each method that has a panel its exhibits by name."""
    found: dict[str, dict[str, Exhibit]] = {}
    for record in report.exhibits:
        if record.exhibit.audit == AUDIT:
            found.setdefault(record.method, {})[record.exhibit.name] = record.exhibit
    return found


def errors_of(report: Report) -> Mapping[str, float]:
    """The test error of every shown network."""
    return {
        method: values[SHOWN_SEED]
        for method in report.methods
        if SHOWN_SEED in (values := ROWS[0].of(report, method))
    }


def _measured(plan: RunPlan, found: RunFindings, data: RunData, runs: Path) -> RunFindings:
    """The findings of a run with roundness and, for the seed that is shown, its panel."""
    if found.note is None or found.note.outcome not in (Outcome.FINISHED, Outcome.COLLAPSED):
        return found
    model = load_model(runs / plan.folder)
    train = draw_at_most(data.train, ROUNDNESS_IMAGES)
    numbers = [*plane_numbers(model, train, "train"), *plane_numbers(model, data.test, "test")]
    records = tuple(Record(data.train.name, plan.method, plan.seed, number) for number in numbers)
    exhibits: list[Exhibit] = []
    if plan.seed == SHOWN_SEED:
        exhibits += panel(model, data.train)
        if plan.method == WITH_LIKELIHOOD:
            radii = PROTOCOLS[plan.recipe.dataset].epsilons
            exhibits += likelihood_panel(model, data.train, data.test, radii[len(radii) // 2])
    shown = tuple(ExhibitRecord(data.train.name, plan.method, plan.seed, exhibit) for exhibit in exhibits)
    return dataclasses.replace(found, records=(*found.records, *records), exhibits=(*found.exhibits, *shown))
