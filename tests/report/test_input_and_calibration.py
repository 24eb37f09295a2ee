"""Sentences about the input and the confidence of a network, and their effect on the other sentences."""

import re
from dataclasses import replace

import pytest

from clearance.records import ExhibitRecord, Record, Report
from clearance.report.audits import all_findings, with_summaries
from clearance.report.findings import Findings
from clearance.report.page import render_page
from clearance.vocabulary import Exhibit, Measurement

pytestmark = pytest.mark.filterwarnings("error")

WAYS = Exhibit(
    "preprocessing",
    "ways",
    "histogram",
    {
        "way": ["mean 0.5 and std 0.5", "no normalisation", "as it is fed now"],
        "share right": [0.9, 0.4, 0.4],
        "remedy": ["Give --mean 0.5 --std 0.5.", "Leave out --mean and --std.", ""],
    },
    "Ways.",
)
PAIRS = Exhibit(
    "confusions",
    "pairs",
    "histogram",
    {"pair": ["cat and dog"], "errors": [40]},
    "Pairs.",
    {"pairs": 45},
)


def measured(audit, name, value, low, high, n=500, unit="fraction", **context):
    return Measurement(
        audit, name, value, unit, n, low=low, high=high, context={**context, "interval": "as invented"}
    )


def fed(value, low, high):
    return measured("preprocessing", "gain", value, low, high)


def refitted(value, low, high):
    return measured("linear_probe", "gain", value, low, high)


def overconfident(value, low, high, state="as trained"):
    return measured("calibration", "overconfidence", value, low, high, temperature=state)


def cooled(temperature=74.0):
    return Measurement("calibration", "temperature", temperature, "factor", 2, spread=3.0)


def pairs(share=0.8, low=0.66, high=0.89, n=50):
    return [measured("confusions", "worst_share", share, low, high, n=n, split="test")]


def report_of(*found):
    records = tuple(Record("animals", "mine", 0, m) for m in found)
    return Report(
        {}, {}, "", "", records, tuple(ExhibitRecord("animals", "mine", 0, e) for e in (WAYS, PAIRS))
    )


def by_title(*found):
    listed = all_findings(Findings(with_summaries(report_of(*found)), "animals"))
    return {finding.title: finding for finding in listed}


def text(finding):
    return re.sub(r"[\u202f\s]+", " ", finding.said.striptags())


class TestInput:
    def test_what_gains_on_test_alone_is_the_fault_of_test(self):
        still = measured("preprocessing", "train_gain", -0.01, -0.03, 0.01)
        finding = by_title(fed(0.5, 0.45, 0.55), still)["Input"]
        assert (finding.severity, finding.code) == ("problem", "")
        assert "on the test images, and changes by \u22121.0 points" in text(finding)
        assert finding.todo.startswith(
            "Check that the images of test are prepared as those of train are. If they are: Give"
        )
        both = measured("preprocessing", "train_gain", 0.5, 0.45, 0.55)
        assert by_title(fed(0.5, 0.45, 0.55), both)["Input"].code == "--mean 0.5 --std 0.5"

    def test_a_clear_gain_is_an_alarm_with_its_remedy(self):
        finding = by_title(fed(0.5, 0.45, 0.55))["Input"]
        assert text(finding) == (
            "With mean 0.5 and std 0.5 instead of the given preprocessing, the accuracy rises by 50.0 points (45.0 to "
            "55.0 points): the network was most likely trained on images prepared in that way."
        )
        assert (finding.severity, finding.code) == ("problem", "--mean 0.5 --std 0.5")
        assert finding.todo == "Give --mean 0.5 --std 0.5. Then audit again."

    def test_ways_that_are_as_good_are_all_named(self):
        ways = replace(
            WAYS,
            columns={
                "way": [
                    "mean 0.5 and std 0.5",
                    "no normalisation",
                    "ImageNet's mean and std",
                    "as it is fed now",
                ],
                "share right": [0.9, 0.4, 0.895, 0.4],
                "remedy": [
                    "Give --mean 0.5 --std 0.5.",
                    "Leave out --mean.",
                    "Give --mean 0.4 --std 0.2.",
                    "",
                ],
            },
        )
        report = replace(
            report_of(fed(0.5, 0.45, 0.55)), exhibits=(ExhibitRecord("animals", "mine", 0, ways),)
        )
        (finding,) = [
            one for one in all_findings(Findings(with_summaries(report), "animals")) if one.title == "Input"
        ]
        assert text(finding).startswith(
            "With mean 0.5 and std 0.5, or as well with ImageNet's mean and std instead"
        )
        assert text(finding).endswith("prepared in one of these ways.")
        assert finding.code == ""
        assert finding.todo == (
            "Of these, take what its training script did. Give --mean 0.5 --std 0.5. Or: Give --mean 0.4 --std 0.2. "
            "Then audit again."
        )

    def test_outputs_in_another_order_are_no_fault_of_the_input(self):
        order = measured("accuracy", "error_in_another_order", 0.02, 0.01, 0.03, split="test")
        assert "Input" not in by_title(fed(0.25, 0.2, 0.3), order)
        assert "Input" not in by_title(fed(0.01, -0.01, 0.03), order)
        assert "Input" in by_title(fed(0.25, 0.2, 0.3))

    @pytest.mark.parametrize(
        ("remedy", "todo", "code"),
        [
            (
                "Give those of the training script, about --mean 0.1,0.2,0.3 --std 0.5.",
                "Give those of the training script, about mean=0.1,0.2,0.3 std=0.5. Then audit again.",
                "clearance.wrap(module, example=images, mean=(0.1, 0.2, 0.3), std=0.5)",
            ),
            ("Leave out --mean and --std.", "Leave out `mean` and `std`. Then audit again.", ""),
        ],
    )
    def test_in_python_the_remedy_is_python(self, remedy, todo, code):
        ways = replace(WAYS, columns={**WAYS.columns, "remedy": [remedy, "", ""]})
        report = replace(
            report_of(fed(0.5, 0.45, 0.55)),
            command="clearance.audit(...)",
            exhibits=(ExhibitRecord("animals", "mine", 0, ways),),
        )
        (finding,) = [
            one for one in all_findings(Findings(with_summaries(report), "animals")) if one.title == "Input"
        ]
        assert (finding.todo, finding.code) == (todo, code)

    def test_a_small_gain_is_a_question(self):
        finding = by_title(fed(0.02, 0.005, 0.035))["Input"]
        assert text(finding).endswith("rises by 2.0 points (0.5 to 3.5 points).")
        assert finding.todo.startswith("Check how its training prepared images.")
        assert finding.severity == "warning"

    @pytest.mark.parametrize("gain", [(0.01, -0.005, 0.025), (0.0, 0.0, 0.0), (-0.3, -0.35, -0.25)])
    def test_no_gain_that_could_be_told_is_fine(self, gain):
        assert by_title(fed(*gain))["Input"].severity == "fine"

    def test_a_last_layer_that_explains_more_is_blamed_instead(self):
        """A broken head is a little better on strange images, and much better when it is made anew."""
        found = by_title(fed(0.1, 0.05, 0.15), refitted(0.5, 0.45, 0.55))
        assert "Input" not in found
        assert found["Linear probe"].severity == "problem"

    def test_before_the_input_is_right_nothing_else_is_worth_doing(self):
        found = by_title(
            fed(0.5, 0.45, 0.55), refitted(0.48, 0.43, 0.53), overconfident(0.3, 0.2, 0.4), *pairs()
        )
        assert next(iter(found)) == "Input"
        assert [title for title, finding in found.items() if finding.todo] == ["Input"]
        assert found["Linear probe"].severity == "information"

    def test_in_doubt_a_refit_waits(self):
        found = by_title(fed(0.02, 0.005, 0.035), refitted(0.03, 0.025, 0.035))
        assert found["Linear probe"].todo == "Fix the input first."
        assert found["Linear probe"].severity == "information"


class TestConfidence:
    @pytest.mark.parametrize("left", [0.001, 0.05])  # a temperature that would help, and one that would not
    def test_what_is_fine_needs_no_action(self, left):
        finding = by_title(
            overconfident(-0.03, -0.045, -0.015), cooled(), overconfident(left, -0.02, 0.06, "calibrated")
        )["Confidence"]
        assert text(finding) == (
            "Slightly underconfident: confidence minus accuracy is −3.0 points (−4.5 to −1.5 points)."
        )
        assert (finding.severity, finding.todo, finding.code) == ("fine", "", "")

    def test_overconfident(self):
        finding = by_title(
            overconfident(0.04, 0.025, 0.06), cooled(), overconfident(0.001, -0.02, 0.02, "calibrated")
        )["Confidence"]
        assert text(finding) == (
            "Overconfident: confidence minus accuracy is 4.0 points (2.5 to 6.0 points)."
        )
        assert finding.severity == "warning"
        assert re.sub(r"[\u202f\s]+", " ", finding.todo.striptags()) == (
            "Divide logits by 74.0: this changes no prediction and leaves 0.1 points (−2.0 to 2.0 points)."
        )
        assert finding.code == "logits = logits / 74.0"

    def test_with_logits_that_are_no_numbers_a_temperature_is_no_advice(self):
        finding = by_title(
            overconfident(0.14, 0.07, 0.21), cooled(), overconfident(0.001, -0.02, 0.02, "calibrated"),
            measured("accuracy", "not_finite", 0.2, 0.1, 0.3, split="test"),
        )["Confidence"]  # fmt: skip
        assert text(finding).endswith("Images whose logits are not finite count as sure and wrong.")
        assert (finding.todo, finding.code) == ("Mend first the logits that are not finite.", "")

    def test_a_temperature_that_leaves_most_of_it_is_no_advice(self):
        left = overconfident(0.0597, 0.0397, 0.0797, "calibrated")
        finding = by_title(overconfident(0.06, 0.04, 0.08), cooled(1.004), left)["Confidence"]
        assert text(finding).endswith("points). Dividing its logits by one temperature does not fix that.")
        assert finding.code == ""

    def test_a_tiny_temperature_can_be_pasted(self):
        left = overconfident(0.001, -0.01, 0.01, "calibrated")
        code = by_title(overconfident(-0.06, -0.08, -0.04), cooled(3.2e-6), left)["Confidence"].code
        assert float(code.removeprefix("logits = logits / ")) == pytest.approx(3.2e-6, rel=0.01)

    def test_a_temperature_that_makes_it_worse_is_no_advice(self):
        """Found on other images: here dividing turns 14 points of overconfidence into 32 of underconfidence."""
        finding = by_title(
            overconfident(0.14, 0.07, 0.21), cooled(), overconfident(-0.32, -0.39, -0.25, "calibrated")
        )["Confidence"]
        assert text(finding).endswith("points). Dividing its logits by one temperature does not fix that.")

    def test_a_little_overconfidence_is_no_alarm(self):
        finding = by_title(overconfident(0.02, 0.01, 0.03))["Confidence"]
        assert finding.severity == "fine"
        assert "is 2.0 points (1.0 to 3.0 points)." in text(finding)

    def test_underconfident(self):
        finding = by_title(overconfident(-0.04, -0.05, -0.03))["Confidence"]
        assert text(finding).startswith(
            "Underconfident: confidence minus accuracy is −4.0 points (−5.0 to −3.0 points)."
        )

    def test_what_the_images_cannot_tell(self):
        finding = by_title(overconfident(0.01, -0.005, 0.03))["Confidence"]
        assert text(finding).startswith("Confidence matches accuracy within what these images can show: ")
        assert (finding.severity, finding.todo) == ("fine", "")


class TestOrder:
    def test_a_last_layer_that_is_outdone_is_no_measure_for_label_costs(self):
        gap = Measurement(
            "co_adaptation",
            "gap",
            -0.4,
            "fraction",
            50,
            spread=0.03,
            context={"head": "linear", "samples": 10},
        )
        damaged, sound = (
            by_title(gap, refitted(0.5, 0.45, 0.55), *pairs()),
            by_title(gap, refitted(0.0, -0.1, 0.1), *pairs()),
        )
        assert text(damaged["Label cost"]).endswith("which could be better: see the linear probe.")
        assert "see the linear probe" not in text(sound["Label cost"])

    def test_warnings_come_after_the_accuracy_and_before_the_rest(self):
        error = measured("accuracy", "error", 0.1, 0.08, 0.12, split="test")
        found = by_title(error, refitted(0.0, -0.1, 0.1), *pairs(), overconfident(0.04, 0.025, 0.06))
        assert list(found) == ["Accuracy", "Worst pair", "Confidence", "Linear probe"]


def test_every_number_is_one_of_the_reports_and_all_stand_on_the_page():
    found = [
        fed(0.5, 0.45, 0.55),
        overconfident(0.04, 0.025, 0.06),
        cooled(),
        overconfident(0.001, -0.02, 0.02, "calibrated"),
    ]
    report = with_summaries(report_of(*found, *pairs()))
    known = {
        value
        for row in report.summary
        for value in (row.value, row.low, row.high, row.n)
        if value is not None
    }
    page = render_page(report)
    for finding in all_findings(Findings(report, "animals")):
        for number in re.findall(r'<data value="([^"]+)"', finding.said + finding.todo):
            assert float(number) in known
        assert str(finding.said) in page
