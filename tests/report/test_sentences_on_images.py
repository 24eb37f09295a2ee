"""What the first screen says of duplicates, labels, sets and corruptions, and from where on each is a problem."""

from dataclasses import replace
from typing import Any

import pytest

from clearance.records import ExhibitRecord, Record, Report
from clearance.report import render_page
from clearance.report.audits import all_findings, sections
from clearance.report.findings import Findings
from clearance.report.page import without_images
from clearance.vocabulary import Exhibit, Measurement

pytestmark = pytest.mark.filterwarnings("error")


def report(*measurements, exhibits=()):
    return Report(
        {}, {}, "clearance audit", "2026-01-01T00:00:00+00:00",
        records=tuple(Record("digits", "mine", 0, one) for one in measurements),
        exhibits=tuple(ExhibitRecord("digits", "mine", 0, one) for one in exhibits),
    )  # fmt: skip


def said(made):
    """The only sentence, as text, and whether it is a problem."""
    (finding,) = all_findings(Findings(made, "digits"))
    words = f"{finding.said.striptags()} {finding.todo}".replace("\u202f", " ").strip()
    render_page(made)
    return words, finding.severity == "problem"


def share(audit, name, value, n, low=None, high=None, **context):
    return Measurement(audit, name, value, "fraction", n, low=low, high=high, better="lower", context=context)


def count(audit, name, value, n, **context):
    return Measurement(audit, name, value, "count", n, better="lower", context=context)


def duplicates(exact, near, of=1000, conflicting=0, within=0):
    columns: dict[str, list[Any]] = {
        "kind": ["exact"], "first set": ["train"], "first image": ["a/<1>.png"], "first class": ["a"],
        "second set": ["test"], "second image": ["b/2.png"], "second class": ["b"],
    }  # fmt: skip
    numbers = [
        count("duplicates", f"{kind}_duplicates", value, of, sets=sets)
        for sets, values in (("train", (within, 0)), ("test", (0, 0)), ("test in train", (exact, near)))
        for kind, value in zip(("exact", "near"), values, strict=True)
    ]
    numbers.append(count("duplicates", "conflicting_labels", conflicting, of))
    numbers += [
        share("duplicates", "error", value, of, value - 0.01, value + 0.01, images=images)
        for images, value in (("all", 0.05), ("not in train", 0.08))
    ]
    table = Exhibit("duplicates", "duplicates", "table", columns, "Pairs of duplicates.")
    image: dict[str, list[Any]] = {
        "image": [[[0.0, 1.0]], [[0.0, 1.0]]],
        "label": ["train a", "test b"],
        "pair": [1, 1],
    }
    return report(*numbers, exhibits=(table, Exhibit("duplicates", "pairs", "images", image, "Pairs.")))


def test_leaked_images_are_counted_with_the_error_without_them():
    words, alarm = said(duplicates(8, 4))
    assert words.startswith(
        "12 of 1,000 test images (1.2 %) are also training images: 8 pixel for pixel, 4 nearly."
    )
    assert "The error is 5.0 % (4.0 to 6.0 %) with them and 8.0 % (7.0 to 9.0 %) without." in words
    assert "card.table('duplicates', 'duplicates')" in words
    assert alarm


def test_few_leaked_images_and_other_duplicates_are_no_alarm():
    assert not said(duplicates(9, 0))[1]
    words, alarm = said(duplicates(0, 0, within=7, conflicting=3))
    assert (
        "7 of the images of train duplicate another there and 3 of all images have a duplicate with another label"
        in words
    )
    assert not alarm
    assert said(duplicates(0, 0)) == (
        "No test image was found among the training images, exactly or nearly.",
        False,
    )


def test_names_of_files_are_text_on_the_page():
    page = render_page(duplicates(1, 0))
    assert "a/&lt;1&gt;.png" in page
    assert "a/<1>.png" not in page


def labels(sure=0.0, pair=0.02, suspects=0.01, low=None, agreement=None):
    columns: dict[str, list[Any]] = {
        "given": ["7", "8"],
        "looks like": ["8", "7"],
        "images": [34, 12],
        "share of given": [pair, 0.12],
    }
    return report(
        share("label_suspects", "suspects", suspects, 1000, 0, 1, split="train"),
        share("label_suspects", "sure", sure, 1000, sure - 0.008, sure + 0.01, split="train"),
        share("label_suspects", "worst_pair", pair, 100, pair - 0.04 if low is None else low, pair + 0.1),
        *([] if agreement is None else [share("label_suspects", "agreement", agreement, 1000, 0, 1)]),
        exhibits=(Exhibit("label_suspects", "pairs", "table", columns, "Classes."),),
    )


def test_a_pair_that_looks_misfiled_is_named_in_both_directions():
    words, alarm = said(labels(pair=0.34))
    assert words.startswith("34 % (30 to 44 %) of 7 look like 8, and 12.0 % of 8 like 7:")
    assert alarm
    assert not said(labels(pair=0.09))[1]
    assert not said(labels(pair=0.12, low=0.04))[1]  # three images of a small class


def test_a_pair_is_no_alarm_where_the_second_classifier_cannot_tell_the_classes_apart():
    assert said(labels(pair=0.34, agreement=0.9))[1]
    words, alarm = said(labels(pair=0.34, agreement=0.62))
    assert "predicts only 62" in words
    assert not alarm


def test_many_sure_suspects_are_an_alarm():
    words, alarm = said(labels(sure=0.04))
    assert "4.0 % (3.2 to 5.0 %) of the labels of train are almost surely wrong." in words
    assert alarm
    words, alarm = said(labels(sure=0.015))
    assert words.startswith("10 labels are worth a look")
    assert not alarm
    assert said(labels(suspects=0.0)) == ("No label looks wrong.", False)


def sets(difference, low, odd=0, imbalance=1.0, unreadable=0):
    return report(
        share("set_facts", "train_minus_test", difference, 400, low, difference + 0.03),
        Measurement("set_facts", "class_imbalance", imbalance, "factor", 10, context={"split": "train"}),
        count("set_facts", "odd_sizes", odd, 400, split="test"),
        count("set_facts", "unreadable_files", unreadable, 400, split="train"),
    )


def test_an_error_on_train_above_that_on_test_is_an_alarm():
    words, alarm = said(sets(0.04, 0.01))
    assert words.startswith("The error on train is above that on test by 4.0 points (1.0 to 7.0 points).")
    assert alarm
    assert not said(sets(0.04, -0.01))[1]
    assert not said(sets(0.01, 0.001))[1]
    assert said(sets(-0.02, -0.05))[0].startswith(
        "Files, sizes, colours and class sizes are ordinary within train and within test."
    )


def test_what_is_odd_is_counted():
    words, alarm = said(sets(0.0, -0.02, odd=3, imbalance=25.0))
    assert "3 pictures of test have an odd size" in words
    assert "the largest class of train has 25× as many images as the smallest" in words
    assert not alarm
    assert said(sets(0.0, -0.02, unreadable=4))[1]
    assert not said(sets(0.0, -0.02, unreadable=3))[1]


def corruptions(mild, strong=0.9, clean=0.04):
    errors = {("none", 0): clean, ("contrast", 1): 0.1, ("contrast", 2): mild, ("contrast", 3): strong}
    table: dict[str, list[Any]] = {
        "corruption": ["contrast"],
        "severity": [2],
        "strength": ["x0.5"],
        "accuracy": [1 - mild],
    }
    numbers = [
        share(
            "common_corruptions",
            "error",
            value,
            200,
            value - 0.01,
            value + 0.01,
            corruption=name,
            severity=severity,
        )
        for (name, severity), value in errors.items()
    ]
    mean = share("common_corruptions", "mean_error", 0.3, 200, 0.28, 0.32)
    return report(
        *numbers, mean, exhibits=(Exhibit("common_corruptions", "strengths", "table", table, "Accuracy."),)
    )


def test_a_mild_corruption_that_halves_the_accuracy_is_an_alarm():
    words, alarm = said(corruptions(mild=0.886))
    assert "The mild one that costs most: contrast (x0.5), accuracy 11.4 % (10.4 to 12.4 %)." in words
    assert alarm
    assert "on average, 4.0 % (3.0 to 5.0 %) without. The mild" in words
    assert not said(corruptions(mild=0.5))[1]  # 50 % of 96 % is more than half


def test_mild_corruptions_that_cost_nothing_are_not_said_to_cost_most():
    made = corruptions(mild=0.03)
    made = replace(made, records=tuple(one for one in made.records if one.measurement.value != 0.1))
    words, alarm = said(made)
    assert words.endswith("without. None of the mild ones costs accuracy.")
    assert not alarm


def test_where_corruptions_were_tried_on_a_part_of_the_images_the_part_is_named():
    whole = report(
        share("accuracy", "error", 0.15, 540, 0.12, 0.18, split="test"),
        *(record.measurement for record in corruptions(mild=0.5).records),
    )
    found = {one.title: one for one in all_findings(Findings(whole, "digits"))}
    words = " ".join(found["Corruptions"].said.striptags().split())
    assert (
        "4.0 % (3.0 to 5.0 %) without, on 200 of the 540 test images, the same number of each class" in words
    )


@pytest.mark.parametrize(
    ("made", "titles"),
    [
        (duplicates(1, 1), ["Duplicates"]),
        (labels(), ["Label suspects"]),
        (sets(0, -1), []),
        (corruptions(0.2), ["Common corruptions"]),
    ],
)
def test_each_has_its_section_where_there_is_something_to_show(made, titles):
    assert [section.title for section in sections(Findings(made, "digits"))] == titles


def test_file_names_are_said_to_be_left_out_only_where_they_are():
    with_names = replace(duplicates(1, 0), recipe={"pictures_left_out": 1})
    text = "Images of the data, and the names of their files, are left out"
    assert "b/2.png" in render_page(with_names)
    assert text not in render_page(with_names)
    shared = render_page(without_images(duplicates(1, 0)))
    assert text in shared
    assert "b/2.png" not in shared
