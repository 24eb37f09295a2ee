"""What the page says first of one network: no more than the numbers carry."""

import base64
import io
import math
import re
from dataclasses import replace

import pytest
from markupsafe import Markup
from PIL import Image

from clearance.records import ExhibitRecord, Record, Report
from clearance.report.audit_page import Finding
from clearance.report.audits import all_findings, headline, with_summaries
from clearance.report.findings import Findings
from clearance.report.page import render_page, write_page
from clearance.report.pictures import as_image
from clearance.report.terminal import findings_text, first_text
from clearance.vocabulary import Exhibit, Measurement

pytestmark = pytest.mark.filterwarnings("error")


def measured(
    audit, name, value, n=500, unit="fraction", low=None, high=None, spread=None, better="lower", **context
):
    if low is not None:
        context["interval"] = "as invented"
    return Measurement(audit, name, value, unit, n, spread, low, high, better, context)


def gaps(**by_samples):
    return [
        measured("co_adaptation", "gap", value, n=50, spread=0.03, head=head, samples=int(samples[1:]))
        for head, change in (("linear", 0.0), ("nearest neighbour", -0.03))
        for samples, value in ((name, gap + change) for name, gap in by_samples.items())
    ]


def report_of(*found, pairs=(("cat and dog", 19),), methods=("mine",)):
    exhibit = Exhibit(
        "confusions", "pairs", "histogram",
        {"pair": [p for p, _ in pairs], "errors": [e for _, e in pairs]}, "Pairs.", {"pairs": 45},
    )  # fmt: skip
    records = tuple(Record("animals", method, 0, m) for method in methods for m in found)
    return Report({}, {}, "", "", records, (ExhibitRecord("animals", methods[0], 0, exhibit),))


def said(report):
    return {
        finding.title: re.sub(r"[\u202f\s]+", " ", finding.said.striptags())
        for finding in all_findings(Findings(with_summaries(report), "animals"))
    }


PAIRS = [
    measured("confusions", "worst_share", 0.38, n=50, low=0.26, high=0.52, split="test"),
]


def flips(noise=0.001, missed=0.0, blind=0.0):
    return [
        measured(
            "minimal_perturbation",
            "median_flip",
            0.0035,
            n=200,
            unit="pixel units",
            low=0.003,
            high=0.004,
            better="higher",
        ),
        measured("minimal_perturbation", "noise_flipped", noise, n=200, low=0.0, high=1.0, norm="inf"),
        measured("minimal_perturbation", "missed_flips", missed, n=200, low=0.0, high=1.0, norm="inf"),
        measured("minimal_perturbation", "no_gradient", blind, n=200, low=0.0, high=1.0, norm="inf"),
    ]


def test_accuracy_under_attack_is_said_with_its_radius():
    under = [
        measured("minimal_perturbation", "accuracy_under_attack", share, n=200, low=share, high=share + 0.02,
                 better="higher", norm="inf", epsilon=radius)
        for radius, share in ((2 / 255, 0.61), (8 / 255, 0.03))
    ]  # fmt: skip
    text = said(report_of(*flips(), *under))["Smallest change"]
    assert "At 2.00/255, at most 61" in text
    assert "At 8.00/255, at most 3" in text


def test_unknown_images_that_the_network_knows_are_a_problem():
    def counted(sets, exact):
        return [
            measured("duplicates", name, value, n=50, unit="count", sets=sets)
            for name, value in (("exact_duplicates", exact), ("near_duplicates", 0))
        ]

    known = report_of(*counted("test in train", 0), *counted("unknown in train or test", 50))
    assert said(known)["Duplicates"] == "50 of 50 unknown images are also in train or test."
    others = report_of(*counted("test in train", 0), *counted("unknown in train or test", 0))
    assert said(others)["Duplicates"].startswith("No test image was found")


def test_an_error_far_above_that_on_train_is_said():
    far = measured("set_facts", "train_minus_test", -0.25, low=-0.3, high=-0.2)
    assert said(report_of(far))["Sets"].startswith(
        "The error on test is above that on train by 25.0 points (20.0 to 30.0 points)."
    )
    near = measured("set_facts", "train_minus_test", -0.05, low=-0.08, high=-0.02)
    assert said(report_of(near))["Sets"].startswith("Files, sizes, colours")


def test_a_last_layer_is_blamed_after_the_input():
    gain = measured("linear_probe", "gain", 0.3, low=0.25, high=0.35)
    fed = measured("preprocessing", "gain", 0.0, low=-0.01, high=0.01)
    for more, start in (([], "First rule out that the input is wrong"), ([fed], "Retrain the last layer")):
        (found,) = [
            one
            for one in all_findings(Findings(with_summaries(report_of(gain, *more)), "animals"))
            if one.title == "Linear probe"
        ]
        assert found.todo.startswith(start)


@pytest.mark.parametrize(
    ("share", "alarms", "severity", "end"),
    [
        (0.4, 0, "information", "(norm"),
        (0.4, 1, "problem", "But the attacks show signs of failing. The true share may be lower."),
        (0.0, 1, "problem", "But the attacks show signs of failing."),
    ],
)
def test_a_doubt_about_attacks_is_said_with_what_it_may_mean(share, alarms, severity, end):
    radius = {"norm": "inf", "epsilon": 0.1}
    attacked = [
        measured(
            "robustness",
            "robust_accuracy",
            share,
            n=200,
            low=share,
            high=share + 0.02,
            better="higher",
            **radius,
        ),
        measured("robustness", "alarms", alarms, n=200, unit="count", **radius),
    ]
    (found,) = [
        one
        for one in all_findings(Findings(with_summaries(report_of(*attacked)), "animals"))
        if one.title == "Under attack"
    ]
    text = re.sub(r"[\u202f\s]+", " ", found.said.striptags())
    assert found.severity == severity
    assert end in text if severity == "information" else text.endswith(end)


def test_without_errors_none_is_called_confident():
    share = measured("mistakes", "confident_share", 0.0, n=1, low=0.0, high=1.0, confidence=0.9)
    assert "Confident mistakes" not in said(report_of(share))
    assert "Confident mistakes" in said(report_of(replace(share, high=0.79)))


def test_without_a_change_that_flips_half_of_the_images_none_is_named():
    never = replace(flips()[0], value=math.inf, low=0.2, high=math.inf)
    text = said(report_of(never, *flips()[1:]))["Smallest change"]
    assert text.startswith(
        "For half of the correctly classified images or more, the search found no change that"
    )
    assert "inf" not in text
    assert "∞" not in text


def test_accuracy_with_its_interval():
    row = measured("accuracy", "error", 0.058, low=0.04, high=0.08, split="test")
    assert said(report_of(row))["Accuracy"] == (
        "94.2 % (92.0 to 96.0 %) of 500 test images are classified correctly."
    )


class TestLabelCost:
    def test_the_smallest_number_that_comes_within_two_points(self):
        text = said(report_of(*PAIRS, *gaps(n10=0.16, n100=0.05, n1000=0.015, n5000=0.001)))["Label cost"]
        assert text == (
            "1,000 labelled images, the same number of each class, train a new last layer to within two points of the "
            "network's own (100 do not); with 10 it loses 16.0 points (± 3.0 points from draw to draw), "
            "a nearest neighbour 13.0 points (± 3.0 points from draw to draw)."
        )

    def test_of_two_numbers_the_smaller_is_told_once(self):
        text = said(report_of(*PAIRS, *gaps(n10=0.16, n100=0.01)))["Label cost"]
        assert "network's own; with 10 it loses" in text

    def test_none_is_enough(self):
        text = said(report_of(*PAIRS, *gaps(n10=0.16, n1000=0.05)))["Label cost"]
        assert text.startswith(
            "A new last layer, trained on up to 1,000 of the training images, stays more than two points behind the "
            "network's own; with 10 it"
        )

    def test_a_network_whose_own_last_layer_is_worse_is_no_measure(self):
        probe = Measurement("linear_probe", "gain", 0.01, "fraction", 300, low=-0.01, high=0.03)
        assert (
            "changes the error"
            not in said(report_of(*PAIRS, *gaps(n30=0.01, n1000=-0.15), probe))["Label cost"]
        )
        text = said(report_of(*PAIRS, *gaps(n30=0.01, n1000=-0.15)))["Label cost"]
        assert text == (
            "A new last layer, trained on 1,000 of the training images, changes the error by \u221215.0 points."
        )

    def test_the_fewest_are_enough(self):
        text = said(report_of(*PAIRS, *gaps(n10=0.01, n1000=0.0)))["Label cost"]
        assert text == (
            "10 labelled images, the same number of each class, train a new last layer to within two points of the "
            "network's own."
        )


class TestRefit:
    @pytest.mark.parametrize(
        ("value", "low", "high", "start"),
        [
            (
                0.006,
                0.002,
                0.010,
                "A new last layer (linear probe), trained on all training images, gains 0.6",
            ),
            (0.006, -0.002, 0.014, "A new last layer (linear probe) gives no significant gain: 0.6"),
            (-0.006, -0.010, -0.002, "A new last layer (linear probe) lowers the accuracy: −0.6 points"),
        ],
    )
    def test_the_interval_decides_what_is_said(self, value, low, high, start):
        text = said(report_of(measured("linear_probe", "gain", value, low=low, high=high)))["Linear probe"]
        assert text.startswith(start)
        assert f"({100 * low:.1f} to {100 * high:.1f} points)".replace("-", "−") in text

    def test_a_damaged_layer_rings(self):
        report = report_of(measured("linear_probe", "gain", 0.2, low=0.15, high=0.25))
        (finding,) = all_findings(Findings(with_summaries(report), "animals"))
        assert finding.severity == "problem"
        assert finding.todo


class TestWorstPair:
    def test_a_pair_that_stands_out_is_named(self):
        text = said(report_of(*PAIRS))["Worst pair"]
        assert text == "cat and dog: 19 of 50 errors, 38 % (26 to 52 %)."

    def test_the_largest_of_many_small_shares_is_not(self):
        """3 of 50 errors in one of 45 pairs: the largest of 45 is that large by luck."""
        few = measured("confusions", "worst_share", 0.06, n=50, low=0.02, high=0.16, split="test")
        assert said(report_of(few, pairs=[("cat and dog", 3)]))["Worst pair"].startswith("No two classes")

    def test_without_errors_none_is(self):
        none = measured("confusions", "worst_share", 0.0, n=1, low=0.0, high=1.0, split="test")
        assert said(report_of(none, pairs=[("cat and dog", 0)]))["Worst pair"].startswith("No test image")


class TestFlipSize:
    def test_size_and_noise_beside(self):
        text = said(report_of(*flips()))["Smallest change"]
        assert text == (
            "For half of the correctly classified images, changing every pixel by at most 0.89/255 (0.77/255 to "
            "1.02/255) of the range from black to white changes the prediction; random noise of that size changes "
            "it for 0.1 %."
        )

    @pytest.mark.parametrize(("signs", "words"), [
        ({"missed": 0.1}, "for 10.0 % of these images a search without gradients finds a change"),
        ({"blind": 0.3}, "30.0 % of these images have no gradient"),
    ])  # fmt: skip
    def test_a_hidden_gradient_rings(self, signs, words):
        report = report_of(*flips(**signs))
        (finding,) = all_findings(Findings(with_summaries(report), "animals"))
        assert finding.severity == "problem"
        assert words in said(report)["Smallest change"]
        assert "The true size may be smaller" in said(report)["Smallest change"]


def test_a_comparison_has_its_own_first_screen():
    assert said(report_of(*flips(), methods=("one", "other"))) == {}


def test_every_number_is_one_of_the_reports_and_all_stand_on_the_page():
    found = [
        measured("accuracy", "error", 0.058, low=0.04, high=0.08, split="test"),
        *PAIRS, *gaps(n10=0.16, n100=0.05, n1000=0.015), *flips(),
        measured("linear_probe", "gain", 0.006, low=0.002, high=0.010),
    ]  # fmt: skip
    report = with_summaries(report_of(*found))
    known = {
        value
        for row in report.summary
        for value in (row.value, row.low, row.high, row.within, row.n, row.context.get("samples"))
        if value is not None
    }
    page = render_page(report)
    for finding in all_findings(Findings(report, "animals")):
        for number in re.findall(r'<data value="([^"]+)"', finding.said):
            assert float(number) in known
        assert str(finding.said) in page


class TestInATerminal:
    def test_the_same_sentences_with_what_to_do_sorted_as_on_the_page(self):
        report = with_summaries(report_of(*gaps(n10=0.16, n120=0.01), *PAIRS, *flips(missed=0.1)))
        shown = first_text(report)
        on_the_page = all_findings(Findings(report, "animals"))
        words = " ".join(shown.split())
        for one in on_the_page:
            assert (
                " ".join(f"{one.title}: {one.said.striptags()} {Markup(one.todo).striptags()}".split())
                in words
            )
        assert shown.splitlines()[0] == "Audit of mine on animals: 1 problem"
        assert [line.split()[0] for line in shown.splitlines() if line[0] != " "][1:] == [
            one.severity for one in on_the_page
        ]
        assert "<" not in shown

    def test_what_can_be_pasted_is_a_line_of_its_own(self):
        found = [
            measured("calibration", "overconfidence", 0.2, low=0.15, high=0.25, temperature="as trained"),
            measured("calibration", "overconfidence", 0.0, low=-0.1, high=0.1, temperature="calibrated"),
            measured("calibration", "temperature", 3.5, n=2, unit="factor"),
        ]
        for width in (40, 96):
            shown = first_text(report_of(*found), width)
            assert "logits = logits / 3.50" in [line.strip() for line in shown.splitlines()]

    def test_a_name_of_a_file_is_never_broken(self):
        name = "exhibits/sign-language-digits.net-py-build.seed0.csv"
        finding = Finding("Labels", "warning", Markup("Some labels are worth a look."), f"The list: {name}.")
        assert name in findings_text("Audit of net", [finding], 60)


def test_the_headline_counts_what_is_neither_first_nor_information():
    accuracy = measured("accuracy", "error", 0.058, low=0.04, high=0.08, split="test")
    found = all_findings(Findings(with_summaries(report_of(accuracy, *PAIRS, *flips(missed=0.1))), "animals"))
    assert headline("Audit of mine", found) == "Audit of mine: 1 problem"
    assert [one.title for one in found] == ["Accuracy", "Smallest change", "Worst pair"]


def test_so_few_test_images_that_one_is_more_than_two_points_tell_no_label_cost():
    own = measured("accuracy", "error", 0.0, low=0.0, high=0.1, n=30, split="test")
    assert (
        said(report_of(own, *gaps(n10=0.0, n1000=0.0)))["Label cost"]
        == "30 test images are too few: each counts for more than two points."
    )


class TestGalleries:
    SHOWN = Exhibit(
        "mistakes", "pairs", "images",
        {
            "pair": ["cat and dog"] * 2, "image": [[[0.0, 1.0], [1.0, 0.0]]] * 2, "file": ["cat/<1>.png", "dog/2.png"],
            "given": ["cat", "dog"], "predicted": ["dog", "cat"], "confidence": [0.99, 0.5],
        },
        "Mistakes.",
    )  # fmt: skip

    def report(self):
        found = report_of(*PAIRS)
        return replace(found, exhibits=(*found.exhibits, ExhibitRecord("animals", "mine", 0, self.SHOWN)))

    def test_the_images_of_the_worst_pair_stand_beside_its_sentence(self):
        first = render_page(self.report()).split("<h2>Details")[0]
        assert first.count("data:image/png;base64,") == 2
        assert "cat/&lt;1&gt;.png" in first
        assert "predicted dog" in first

    def test_the_page_to_share_has_the_sentence_and_no_image_or_name_of_a_file(self, tmp_path):
        write_page(self.report(), tmp_path)
        own, shared = ((tmp_path / name).read_text("utf-8") for name in ("index.html", "share.html"))
        assert "data:image" in own
        assert "dog/2.png" in own
        assert "data:image" not in shared
        assert "dog/2.png" not in shared
        assert str(all_findings(Findings(with_summaries(self.report()), "animals"))[0].said) in shared

    def test_a_png_has_the_pixels_that_were_stored(self):
        grey = as_image([[[0.0, 0.5, 1.0]]]).partition(",")[2]
        red = as_image([[[1.0]], [[0.0]], [[0.0]]]).partition(",")[2]
        pictures = [Image.open(io.BytesIO(base64.b64decode(text))) for text in (grey, red)]
        assert [pictures[0].getpixel((k, 0)) for k in range(3)] == [0, 128, 255]
        assert pictures[1].getpixel((0, 0)) == (255, 0, 0)
