"""What rings on the first screen: each rule of docs/severity.md, and its row for every audit with findings."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from clearance.experiments.catalogue import AUDITS
from clearance.records import ExhibitRecord, Record, Report
from clearance.report.audit_page import SEVERITIES
from clearance.report.audits import all_findings, page_of, with_summaries
from clearance.report.audits.goodness_of_fit import fit_section
from clearance.report.findings import Findings
from clearance.report.page import without_images
from clearance.report.pictures import Gallery
from clearance.vocabulary import Exhibit, Measurement

pytestmark = pytest.mark.filterwarnings("error")

RULES = Path(__file__).parents[2] / "docs" / "severity.md"


def measured(audit, name, value, low=None, high=None, n=500, unit="fraction", **context):
    if low is not None:
        context["interval"] = "as invented"
    return Measurement(audit, name, value, unit, n, low=low, high=high, context=context)


def severity_of(title, *found, exhibits=()):
    records = tuple(Record("animals", "mine", 0, m) for m in found)
    shown = tuple(ExhibitRecord("animals", "mine", 0, e) for e in exhibits)
    report = with_summaries(Report({}, {}, "", "", records, shown))
    (severity,) = [one.severity for one in all_findings(Findings(report, "animals")) if one.title == title]
    return severity


def test_every_audit_with_findings_has_its_rules_in_the_table():
    rows = {row[0].strip(" `"): row[1:] for row in (
        line.strip("|").split("|") for line in RULES.read_text("utf-8").splitlines() if line.startswith("| `")
    )}  # fmt: skip
    assert set(rows) == {name for name in AUDITS if page_of(name).findings is not None}
    assert all(len(cells) == len(SEVERITIES) for cells in rows.values())
    heads = re.search(r"^\| audit \|(.*)\|$", RULES.read_text("utf-8"), re.MULTILINE)
    assert heads is not None
    assert tuple(head.strip() for head in heads[1].split("|")) == SEVERITIES


def test_another_order_of_the_classes_comes_with_the_order_to_paste():
    order = Exhibit("accuracy", "order", "table", {"class": ["cat", "dog"], "output": [1, 0]}, "The order.")
    wrong = measured("accuracy", "error", 0.97, 0.95, 0.98, split="test")
    right = measured("accuracy", "error_in_another_order", 0.03, 0.02, 0.05, split="test")
    records = tuple(Record("animals", "mine", 0, one) for one in (wrong, right))
    shown = (ExhibitRecord("animals", "mine", 0, order),)
    report = with_summaries(Report({}, {}, "", "", records, shown))
    (found,) = [one for one in all_findings(Findings(report, "animals")) if one.severity == "problem"]
    assert found.code == "logits = logits[:, [1, 0]]"
    assert "97.0 % (95.0 to 98.0 %) of the test images are right" in " ".join(
        str(found.said.striptags()).split()
    )


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({}, ""),
        ({"model": "mynet:Net", "weights": "best.pt"}, ""),
        ({"model": "hf:resnet", "weights": None}, ""),
        (
            {"model": "mynet:Net", "weights": None},
            " No --weights were given: its weights are those that mynet:Net comes with.",
        ),
    ],
)
def test_hardly_better_than_always_naming_the_largest_class(recipe, said):
    found = (
        measured("accuracy", "error", 0.837, 0.803, 0.866, n=540, split="test"),
        measured("accuracy", "largest_class", 0.102, n=540, split="test"),
    )
    records = tuple(Record("animals", "mine", 0, one) for one in found)
    (finding,) = [
        one for one in all_findings(Findings(Report(recipe, {}, "", "", records), "animals")) if not one.lead
    ]
    assert finding.severity == "problem"
    assert " ".join(finding.said.striptags().split()) == (
        "16.3 % (13.4 to 19.7 %) of the test images are right, and 10.2 % are of the largest class: the network is "
        f"hardly better than always naming that class.{said}"
    )
    assert finding.todo.startswith("Check that trained weights were loaded")
    assert finding.alone  # a temperature, for example, would mend nothing


def test_what_is_not_a_number_is_named_and_nothing_is_claimed_of_it():
    gain = measured("preprocessing", "gain", math.nan, unit="fraction")
    error = measured("accuracy", "error", 0.05, 0.03, 0.07, split="test")
    records = tuple(Record("animals", "mine", 0, one) for one in (error, gain))
    found = all_findings(Findings(Report({}, {}, "", "", records), "animals"))
    assert [(one.title, one.severity) for one in found] == [
        ("Accuracy", "information"),
        ("Not measured", "problem"),
    ]
    assert "Gain from other preprocessing" in found[1].said
    assert severity_of("Not measured", gain) == "problem"


@pytest.mark.parametrize(
    ("value", "low", "high", "severity"),
    [
        (-0.225, -0.25, -0.20, "problem"),  # underconfident by 22 points
        (0.225, 0.20, 0.25, "problem"),
        (0.11, 0.09, 0.13, "warning"),
        (-0.05, -0.07, -0.03, "warning"),
        (0.03, 0.015, 0.045, "fine"),
        (0.2, -0.1, 0.5, "fine"),
    ],
)
def test_confidence(value, low, high, severity):
    row = measured("calibration", "overconfidence", value, low, high, temperature="as trained")
    assert severity_of("Confidence", row) == severity


@pytest.mark.parametrize(
    ("errors", "of", "images", "pairs", "severity"),
    [
        (11, 22, 497, 45, "problem"),  # a pair with half of the errors
        (11, 22, 5000, 45, "warning"),  # which are few
        (4, 6, 497, 45, "information"),  # too few errors to say so
        (10, 22, 497, 45, "information"),  # less than half
        (1, 22, 497, 45, "fine"),  # stands out no more than chance
        (20, 22, 497, 3, "information"),  # of three pairs
    ],
)
def test_a_pair_with_half_of_the_errors(errors, of, images, pairs, severity):
    shown = Exhibit(
        "confusions", "pairs", "histogram",
        {"pair": ["7 and 8"], "errors": [errors]}, "Pairs.", {"pairs": pairs},
    )  # fmt: skip
    found = (
        measured("accuracy", "error", of / images, 0.0, 1.0, images, split="test"),
        measured("confusions", "worst_share", errors / of, 0.0, 1.0, of, split="test"),
    )
    assert severity_of("Worst pair", *found, exhibits=[shown]) == severity


@pytest.mark.parametrize(
    ("outside", "of", "images", "severity"),
    [(12, 22, 497, "problem"), (12, 22, 5000, "warning"), (1, 1, 5000, "information")],
)
def test_answers_beyond_the_classes(outside, of, images, severity):
    shown = Exhibit(
        "confusions", "pairs", "histogram", {"pair": ["7 and 8"], "errors": [0]}, "Pairs.", {"pairs": 45}
    )
    found = (
        measured("accuracy", "error", of / images, 0.0, 1.0, images, split="test"),
        measured("confusions", "worst_share", 0.0, 0.0, 1.0, of, split="test"),
        measured("confusions", "outside_share", outside / of, 0.0, 1.0, of, split="test"),
    )
    assert severity_of("Outputs without a class", *found, exhibits=[shown]) == severity


@pytest.mark.parametrize(
    ("low", "high", "severity"),
    [(0.03, 0.5, "problem"), (0.01, 0.5, "warning"), (-0.1, 0.1, "fine"), (-0.3, -0.1, "fine")],
)
def test_another_preprocessing_and_a_new_last_layer(low, high, severity):
    ways = Exhibit(
        "preprocessing", "ways", "histogram",
        {"way": ["no normalisation", "now"], "share right": [0.9, 0.4], "remedy": ["Leave out --mean.", ""]}, "Ways.",
    )  # fmt: skip
    gain = (low + high) / 2
    assert (
        severity_of("Input", measured("preprocessing", "gain", gain, low, high), exhibits=[ways]) == severity
    )
    assert severity_of("Linear probe", measured("linear_probe", "gain", gain, low, high)) == severity


@pytest.mark.parametrize(
    ("low", "high", "severity"), [(0.01, 0.06, "problem"), (0.2, 0.4, "warning"), (0.4, 0.6, "fine")]
)
def test_unknown_images(low, high, severity):
    rejected = measured("out_of_distribution", "rejected", (low + high) / 2, low, high, unknown="sign")
    kept = measured("out_of_distribution", "kept", 0.95, 0.92, 0.97)
    assert severity_of("Unknown images", rejected, kept) == severity


@pytest.mark.parametrize(
    ("kind", "name", "title"), [("class", "recall", "Worst class"), ("slice", "accuracy", "Worst slice")]
)
@pytest.mark.parametrize(
    ("low", "severity"), [(0.13, "problem"), (0.05, "warning"), (0.01, "fine"), (-0.1, "fine")]
)
def test_a_class_or_slice_that_lies_behind(kind, name, title, low, severity):
    found = [
        measured("performance", quantity, value, *ends, n=50, split="test", **{kind: group})
        for group, start in (("cat", low), ("dog", -0.1))
        for quantity, value, ends in ((name, 0.7, (0.5, 0.8)), ("behind", start + 0.1, (start, start + 0.2)))
    ]
    assert severity_of(title, *found) == severity


def test_a_slice_of_a_few_images_lies_behind_only_in_the_table():
    """One wrong image is 0 % of its slice."""

    def behind(group, low, n):
        context = {"slice": group}
        return [
            measured("performance", "accuracy", 0.0, 0.0, 0.8, n=n, split="test", **context),
            measured("performance", "behind", low + 0.1, low, low + 0.2, n=n, split="test", **context),
        ]

    assert severity_of("Worst slice", *behind("Leica", 0.12, n=1), *behind("Nikon", -0.1, n=80)) == "fine"
    assert severity_of("Worst slice", *behind("Leica", 0.12, n=6), *behind("Nikon", -0.1, n=80)) == "problem"


@pytest.mark.parametrize(
    ("sizes", "todo"),
    [
        (
            [400, 119],
            "It has 119 training images, the largest class 400: train on more images of it, or give it more weight in "
            "the loss. Look at the images of dog and at their labels first.",
        ),
        ([200, 119], "Look at the images of dog and at their labels first."),
    ],
)
def test_a_class_that_lies_behind_with_few_training_images_needs_more(sizes, todo):
    found = [
        measured("performance", "recall", 0.1, 0.03, 0.2, n=40, split="test", **{"class": "dog"}),
        measured("performance", "behind", 0.8, 0.7, 0.9, n=40, split="test", **{"class": "dog"}),
    ]
    columns = {"class": ["cat", "dog"], "train images": sizes, "test images": [40, 40]}
    shown = ExhibitRecord(
        "animals", "mine", 0, Exhibit("set_facts", "class_sizes", "table", columns, "Sizes.")
    )
    records = tuple(Record("animals", "mine", 0, one) for one in found)
    report = with_summaries(Report({}, {}, "", "", records, (shown,)))
    (finding,) = [one for one in all_findings(Findings(report, "animals")) if one.title == "Worst class"]
    assert Markup(finding.todo).striptags() == todo


def test_what_spoils_all_other_numbers_stands_before_them():
    found = [
        measured("label_suspects", "worst_pair", 0.3, 0.2, 0.4),
        measured("preprocessing", "gain", 0.56, 0.5, 0.6),
    ]
    columns: dict[str, list[Any]] = {
        "way": ["no mean", "as it is fed now"], "share right": [0.9, 0.4], "remedy": ["Leave out --mean.", ""]
    }  # fmt: skip
    ways = ExhibitRecord("animals", "mine", 0, Exhibit("preprocessing", "ways", "table", columns, "Ways."))
    records = tuple(Record("animals", "mine", 0, one) for one in found)
    ordered = all_findings(Findings(Report({}, {}, "", "", records, (ways,)), "animals"))
    assert [(one.title, one.severity, bool(one.todo)) for one in ordered] == [
        ("Input", "problem", True),
        ("Labels", "problem", False),
    ]


def test_the_page_to_share_names_no_file_that_it_was_parted_from():
    row = measured("label_suspects", "worst_pair", 0.2, 0.15, 0.25)
    sure = measured("label_suspects", "sure", 0.1, 0.05, 0.15, split="train")
    columns = {"set": ["train"], "image": ["a.png"], "given": ["cat"]}
    table = Exhibit("label_suspects", "suspects", "table", columns, "Suspects.")
    records = tuple(Record("animals", "mine", 0, one) for one in (row, sure))
    report = Report({}, {}, "", "", records, (ExhibitRecord("animals", "mine", 0, table),))
    own, shared = (
        next(one.todo for one in all_findings(Findings(some, "animals")) if one.title == "Labels")
        for some in (report, without_images(report))
    )
    in_python = "in Python card.table('label_suspects', 'suspects')."
    start = "Look at them, surest first, and correct those that are wrong. The list: "
    assert re.fullmatch(rf"{start}on the page, in \S+csv beside it, or {re.escape(in_python)}", str(own))
    assert str(shared) == start + in_python


def test_the_class_that_lies_behind_is_shown():
    columns: dict[str, Any] = {
        "image": [[[0.1]], [[0.5]], [[0.9]]],
        "file": ["a.png", "b.png", "c.png"],
        "given": ["cat", "dog", "cat"],
        "predicted": ["dog", "cat", "dog"],
        "confidence": [0.99, 0.98, 0.97],
    }
    shown = Exhibit("mistakes", "confident", "images", columns, "Mistakes.")
    numbers = [
        measured("performance", "recall", 0.5, 0.4, 0.6, n=50, split="test", **{"class": "cat"}),
        measured("performance", "behind", 0.3, 0.2, 0.4, n=50, split="test", **{"class": "cat"}),
    ]
    records = tuple(Record("animals", "mine", 0, one) for one in numbers)
    report = Report({}, {}, "", "", records, (ExhibitRecord("animals", "mine", 0, shown),))
    (found,) = all_findings(Findings(report, "animals"))[:1]
    assert found.todo == "Look at the images of cat and at their labels first."
    (gallery,) = found.pictures
    assert isinstance(gallery, Gallery)
    assert [shot.words[0] for shot in gallery.shots] == ["a.png", "c.png"]


@pytest.mark.parametrize(("share", "shown"), [(0.0, 0), (0.5, 1)])
def test_mistakes_are_shown_as_confident_only_where_some_are(share, shown):
    columns: dict[str, Any] = {
        "image": [[[0.1]]], "file": ["a.png"], "given": ["cat"], "predicted": ["dog"], "confidence": [0.6]
    }  # fmt: skip
    exhibit = Exhibit("mistakes", "confident", "images", columns, "Mistakes.")
    number = measured("mistakes", "confident_share", share, 0.0, 0.6, n=4, confidence=0.9)
    report = Report(
        {},
        {},
        "",
        "",
        (Record("animals", "mine", 0, number),),
        (ExhibitRecord("animals", "mine", 0, exhibit),),
    )
    (found,) = [one for one in all_findings(Findings(report, "animals")) if one.title == "Confident mistakes"]
    assert (len(found.pictures), bool(found.todo)) == (shown, bool(shown))


@pytest.mark.parametrize(
    ("exact", "near", "severity"), [(200, 0, "problem"), (0, 3, "problem"), (2, 0, "warning"), (0, 0, "fine")]
)
def test_leaked_test_images(exact, near, severity):
    found = [
        measured("duplicates", name, count, n=252, unit="count", sets="test in train")
        for name, count in (("exact_duplicates", exact), ("near_duplicates", near))
    ]
    assert severity_of("Duplicates", *found) == severity


@pytest.mark.parametrize(
    ("at", "error", "severity"),
    [(1, 0.6, "problem"), (2, 0.886, "problem"), (2, 0.4, "information"), (3, 0.95, "information")],
)
def test_a_mild_corruption_that_halves_the_accuracy(at, error, severity):
    errors = {0: 0.034, 1: 0.05, 2: 0.05, 3: 0.06, at: error}
    found = [
        measured(
            "common_corruptions", "error", value, max(0.0, value - 0.02), min(1.0, value + 0.02), severity=strength,
            corruption="contrast" if strength else "none",
        )
        for strength, value in errors.items()
    ]  # fmt: skip
    mean = measured("common_corruptions", "mean_error", 0.2, 0.18, 0.22)
    assert severity_of("Corruptions", mean, *found) == severity
    few = [replace(one, low=max(0.0, one.value - 0.4)) for one in found]
    assert severity_of("Corruptions", mean, *few) == "information", "too few images to tell"


@pytest.mark.parametrize(("offset", "severity"), [(0.12, "warning"), (0.05, "fine")])
def test_learned_means_that_are_not_those_of_their_classes_are_said(offset, severity):
    found = measured("goodness_of_fit", "mean_offset", offset)
    assert severity_of("Learned means", found) == severity
    others = [Record("animals", method, 0, found) for method in ("lgm", "gm")]
    fit = Measurement(
        "goodness_of_fit", "coverage", 0.9, "fraction", 50, context={"statistics": "own", "class": "all"}
    )
    report = Report({}, {}, "", "", (*others, Record("animals", "lgm", 0, fit)))
    section = fit_section(Findings(with_summaries(report), "animals"))
    assert section is not None
    said = " ".join(Markup(text).striptags() for text in section.text)
    assert ("The learned means of" in said) == (severity == "warning")
