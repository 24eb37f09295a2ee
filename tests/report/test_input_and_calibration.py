"""Sentences about the input and the confidence of a network, and their effect on the other sentences."""

import re

import pytest

from clearance.records import ExhibitRecord, Record, Report
from clearance.report.audits import actions, with_summaries
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
    {"pair": ["cat and dog"], "errors": [40], "closeness": [3.0]},
    "Pairs.",
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


def pairs(share=0.8, low=0.66, high=0.89, n=50, count=45):
    return [
        measured("confusions", "worst_share", share, low, high, n=n, split="test"),
        Measurement("confusions", "worst_closeness", 3.0, "ratio", count, context={"split": "test"}),
    ]


def report_of(*found):
    records = tuple(Record("animals", "mine", 0, m) for m in found)
    return Report(
        {}, {}, "", "", records, tuple(ExhibitRecord("animals", "mine", 0, e) for e in (WAYS, PAIRS))
    )


def actions_of(*found):
    listed = actions(Findings(with_summaries(report_of(*found)), "animals"))
    return {action.title: action for action in listed}


def text(action):
    return re.sub(r"[\u202f\s]+", " ", action.said.striptags())


class TestInput:
    def test_a_clear_gain_is_an_alarm_with_its_remedy(self):
        action = actions_of(fed(0.5, 0.45, 0.55))["Input"]
        assert text(action) == (
            "This network is most likely fed images prepared in another way than in its training, and every other "
            "number here suffers from it: with mean 0.5 and std 0.5 its accuracy rises by 50.0 points (45.0 to 55.0"
            " points)."
        )
        assert action.alarm
        assert action.todo == "Give --mean 0.5 --std 0.5. Then audit again."

    def test_a_small_gain_is_a_question(self):
        action = actions_of(fed(0.02, 0.005, 0.035))["Input"]
        assert text(action).startswith(
            "This network may be fed images prepared in another way than in its training: with mean 0.5"
        )
        assert not action.alarm

    @pytest.mark.parametrize("gain", [(0.01, -0.005, 0.025), (0.0, 0.0, 0.0), (-0.3, -0.35, -0.25)])
    def test_no_gain_that_could_be_told_is_not_mentioned(self, gain):
        assert "Input" not in actions_of(fed(*gain))

    def test_a_last_layer_that_explains_more_is_blamed_instead(self):
        """A broken head is a little better on strange images, and much better when it is made anew."""
        found = actions_of(fed(0.1, 0.05, 0.15), refitted(0.5, 0.45, 0.55))
        assert "Input" not in found
        assert found["Linear probe"].alarm

    def test_before_the_input_is_right_nothing_else_is_worth_doing(self):
        found = actions_of(
            fed(0.5, 0.45, 0.55), refitted(0.48, 0.43, 0.53), overconfident(0.3, 0.2, 0.4), *pairs()
        )
        assert next(iter(found)) == "Input"
        assert [title for title, action in found.items() if action.todo] == ["Input"]
        assert not found["Linear probe"].alarm

    def test_in_doubt_a_refit_waits(self):
        found = actions_of(fed(0.02, 0.005, 0.035), refitted(0.03, 0.025, 0.035))
        assert found["Linear probe"].todo == "Fix the input first: that may be the whole cause."
        assert not found["Linear probe"].alarm


class TestConfidence:
    def test_overconfident(self):
        action = actions_of(
            overconfident(0.04, 0.025, 0.06), cooled(), overconfident(0.001, -0.02, 0.02, "calibrated")
        )["Calibration"]
        assert text(action) == (
            "It is overconfident: its mean confidence exceeds its accuracy by 4.0 points (2.5 to 6.0 points). "
            "Dividing its logits by a temperature of 74.0 changes no prediction and leaves a difference of 0.1 "
            "points (−2.0 to 2.0 points)."
        )
        assert action.alarm
        assert action.todo == "Do not read its probabilities as the chance of being right."

    def test_a_temperature_that_makes_it_worse_is_no_advice(self):
        """Found on other images: here dividing turns 14 points of overconfidence into 32 of underconfidence."""
        action = actions_of(
            overconfident(0.14, 0.07, 0.21), cooled(), overconfident(-0.32, -0.39, -0.25, "calibrated")
        )["Calibration"]
        assert text(action).endswith("points). Dividing its logits by one temperature does not fix that.")

    def test_a_little_overconfidence_is_no_alarm(self):
        action = actions_of(overconfident(0.02, 0.01, 0.03))["Calibration"]
        assert not action.alarm
        assert text(action).endswith("by 2.0 points (1.0 to 3.0 points).")

    def test_underconfident(self):
        action = actions_of(overconfident(-0.04, -0.06, -0.02))["Calibration"]
        assert text(action) == (
            "It is underconfident: its mean confidence minus its accuracy is −4.0 points (−6.0 to −2.0 points)."
        )

    def test_what_the_images_cannot_tell(self):
        action = actions_of(overconfident(0.01, -0.005, 0.03))["Calibration"]
        assert text(action).startswith(
            "Its confidence matches its accuracy within what these images can show: "
        )
        assert (action.alarm, action.todo) == (False, "")


class TestAlarms:
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
            actions_of(gap, refitted(0.5, 0.45, 0.55), *pairs()),
            actions_of(gap, refitted(0.0, -0.1, 0.1), *pairs()),
        )
        assert text(damaged["Label cost"]).endswith("which could be better: see the warning.")
        assert "see the warning" not in text(sound["Label cost"])
        assert (damaged["Worst pair"].todo, damaged["Worst pair"].alarm) == ("", False)
        assert "the layer was damaged, not trained to the end" in text(damaged["Linear probe"])

    @pytest.mark.parametrize(
        ("share", "alarm"),
        [({}, True), ({"share": 0.6, "low": 0.45, "high": 0.72}, False), ({"count": 3}, False)],
    )
    def test_a_pair_with_most_of_the_wrong_answers_is_an_alarm(self, share, alarm):
        action = actions_of(*pairs(**share))["Worst pair"]
        assert action.alarm == alarm
        assert action.todo.startswith("Look at the labels and images of cat and dog first")

    def test_alarms_come_after_the_accuracy_and_before_the_rest(self):
        error = measured("accuracy", "error", 0.1, 0.08, 0.12, split="test")
        found = actions_of(error, refitted(0.0, -0.1, 0.1), *pairs(), overconfident(0.04, 0.025, 0.06))
        assert list(found) == ["Accuracy", "Worst pair", "Calibration", "Linear probe"]


def test_every_number_is_one_of_the_reports_and_all_stand_on_the_page():
    found = [
        fed(0.5, 0.45, 0.55),
        overconfident(0.04, 0.025, 0.06),
        cooled(),
        overconfident(0.001, -0.02, 0.02, "calibrated"),
    ]
    report = with_summaries(report_of(*found, *pairs()))
    known = {value for row in report.summary for value in (row.value, row.low, row.high) if value is not None}
    page = render_page(report)
    for action in actions(Findings(report, "animals")):
        for number in re.findall(r'<data value="([^"]+)"', action.said):
            assert float(number) in known
        assert str(action.said) in page
