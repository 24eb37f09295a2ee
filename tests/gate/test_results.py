"""Two reports and a tolerance: failed only where the interval excludes the tolerance, not measured without one."""

from dataclasses import replace

import numpy as np
import pytest

from clearance.gate import GateStatus, Tolerance, check, junit, markdown
from clearance.gate.results import GateResult
from clearance.records import ExhibitRecord, Record
from clearance.vocabulary import Exhibit, Measurement
from gate.reports import distance, distances, error, of_images, report, robustness, wrong_images


def result_of(now, last, text, method=None):
    (found,) = check(now, last, [Tolerance.parse(text)], method)
    return found


def wrong(count, n=1000, start=0):
    values = np.zeros(n, dtype=int)
    values[start : start + count] = 1
    return values.tolist()


def test_a_clear_drop_fails_and_noise_does_not():
    last = of_images(wrong(50))
    assert result_of(of_images(wrong(100)), last, "accuracy drops 1pt").status is GateStatus.FAIL
    noisy = result_of(of_images(wrong(52, start=10)), last, "accuracy drops 1pt")
    assert noisy.status is GateStatus.PASS
    assert "too few images to exclude" in str(noisy)
    same = result_of(last, last, "accuracy drops 1pt")
    assert same.status is GateStatus.PASS
    assert str(same).endswith("(95 %, paired over 1000 images)")


def test_pairing_sees_what_intervals_side_by_side_do_not():
    """25 more errors of 1000 on the same images: significant, because no image changed the other way."""
    found = result_of(of_images(wrong(125)), of_images(wrong(100)), "accuracy drops 0.5pt")
    assert found.status is GateStatus.FAIL
    assert (found.last, found.now) == (pytest.approx(0.9), pytest.approx(0.875))
    assert str(found).startswith("failed: accuracy drops 0.5pt; 90.0 % -> 87.5 %, change -3.")


def test_a_gain_never_fails_a_drop():
    last, now = of_images(wrong(200)), of_images(wrong(10))
    assert result_of(now, last, "accuracy drops 1pt").status is GateStatus.PASS
    assert result_of(now, last, "accuracy rises 1pt").status is GateStatus.FAIL
    assert result_of(now, last, "error drops 1pt").status is GateStatus.FAIL
    assert result_of(now, last, "accuracy changes 1pt").status is GateStatus.FAIL


@pytest.mark.parametrize(
    ("text", "noted"),
    [("accuracy rises 1pt", True), ("error drops 1pt", True), ("accuracy drops 1pt", False), ("error rises 1pt", False),
     ("accuracy changes 1pt", False)],
)  # fmt: skip
def test_a_tolerance_that_fails_only_better_models_says_so(text, noted):
    found = result_of(of_images(wrong(100)), of_images(wrong(100)), text)
    assert ("this fails only where the number gets better" in str(found)) is noted


def test_shares_are_of_the_older_number():
    last, now = of_images(wrong(100)), of_images(wrong(180))  # 0.90 -> 0.82 is 8.9 % less
    assert result_of(now, last, "accuracy drops 5%").status is GateStatus.FAIL
    assert result_of(now, last, "accuracy drops 9%").status is GateStatus.PASS


def test_other_images_are_not_paired():
    last, now = of_images(wrong(100), images="aa"), of_images(wrong(900), images="bb")
    found = result_of(now, last, "accuracy drops 1pt")
    assert found.status is GateStatus.UNMEASURED
    assert found.reason == (
        "the reports are of different images, or measured them in different ways: give both audits the same images "
        "and settings (they have 1 seed in common; 2 would do, too)"
    )


def test_over_seeds_other_images_are_named():
    def three(errors, images):
        kept = [wrong_images(wrong(errors), seed, images) for seed in range(3)]
        return report(*(error(errors / 1000, seed) for seed in range(3)), *kept)

    last, now = three(100, "aa"), three(50, "bb")
    assert "paired over 3 seeds, of different images" in str(result_of(now, last, "accuracy drops 1pt"))
    kept = [
        row
        for k in range(3)
        for row in (error(0.1 + 0.05 * k, k), wrong_images(wrong(100 + 50 * k), k, "bb"))
    ]
    assert "too few seeds" in str(result_of(report(*kept), last, "accuracy drops 1pt"))


def test_reports_of_two_datasets_are_not_compared():
    last, now = (report(*(error(errors, seed) for seed in range(3))) for errors in (0.1, 0.01))
    other = replace(now, records=tuple(replace(one, dataset="other") for one in now.records))
    found = result_of(other, last, "accuracy drops 1pt")
    assert (found.status, found.reason) == (
        GateStatus.UNMEASURED, f"the older report is of {last.records[0].dataset}, the newer of other"
    )  # fmt: skip


def test_seeds_that_one_of_the_reports_lacks_are_said():
    last = report(*[row for seed in range(5) for row in (error(0.1, seed), wrong_images(wrong(100), seed))])
    assert (
        result_of(of_images(wrong(100)), last, "accuracy drops 1pt").over
        == "paired over 1000 images, 1 of 5 seeds"
    )
    bare = report(*[error(0.1 + 0.001 * seed, seed) for seed in range(5)])
    fewer = report(*[error(0.1, seed) for seed in range(3)])
    assert result_of(fewer, bare, "accuracy drops 1pt").over == "paired over 3 seeds of 5"


def test_a_relative_drop_of_all_is_no_tolerance():
    with pytest.raises(
        ValueError, match=r"a drop of 100 % or more tolerates any change; got 'accuracy drops 150%'"
    ):
        Tolerance.parse("accuracy drops 150%")


def test_other_numbers_of_images_are_named():
    last, now = of_images(wrong(100)), of_images(wrong(100)[:500])
    found = result_of(now, last, "accuracy drops 1pt")
    assert found.reason.startswith(
        "the older report measured 1000 images and the newer 500: give both audits"
    )


def test_different_seeds_of_one_model_each_are_the_same_images():
    assert (
        result_of(of_images(wrong(300), seed=4), of_images(wrong(1), seed=0), "accuracy drops 1pt").status
        is GateStatus.FAIL
    )


def test_several_seeds_are_averaged_image_by_image():
    rows = [
        row
        for seed in range(3)
        for row in (error(0.1, seed), wrong_images(wrong(100, start=20 * seed), seed))
    ]
    more = [
        row
        for seed in range(3)
        for row in (error(0.2, seed), wrong_images(wrong(200, start=20 * seed), seed))
    ]
    found = result_of(report(*more), report(*rows), "accuracy drops 1pt")
    assert found.status is GateStatus.FAIL
    assert found.over == "paired over 1000 images"
    assert (found.last, found.now) == (pytest.approx(0.9), pytest.approx(0.8))


def test_without_images_it_is_over_seeds():
    last = report(*[error(0.10 + 0.001 * seed, seed) for seed in range(4)])
    now = report(*[error(0.15 + 0.001 * seed**2, seed) for seed in range(4)])
    found = result_of(now, last, "accuracy drops 1pt")
    assert found.status is GateStatus.FAIL
    assert found.over == "paired over 4 seeds"
    assert result_of(now, last, "accuracy drops 10pt").status is GateStatus.PASS
    lonely = result_of(report(error(0.9)), report(error(0.1)), "accuracy drops 1pt")
    assert lonely.status is GateStatus.UNMEASURED
    assert "keep no numbers of single images for it, and have 1 seed in common" in lonely.reason


def test_points_are_of_fractions_alone():
    kept = report(distance(1.0), distances([1.0] * 50))
    with pytest.raises(
        ValueError,
        match=r"points are of fractions, and minimal_perturbation.median_flip is in pixel units; got",
    ):
        result_of(kept, kept, "flip_distance drops 1pt")


def test_medians_of_distances():
    values = np.random.default_rng(0).lognormal(size=200)
    last = report(distance(float(np.median(values))), distances(values))
    now = report(distance(float(np.median(0.7 * values))), distances(0.7 * values))
    found = result_of(now, last, "flip_distance drops 10%")
    assert found.status is GateStatus.FAIL
    assert (found.low, found.high) == (pytest.approx(-0.3), pytest.approx(-0.3))
    assert result_of(now, last, "flip_distance drops 40%").status is GateStatus.PASS
    nothing = report(distance(0.0), distances(np.zeros(200)))
    assert result_of(now, nothing, "flip_distance drops 10%").status is GateStatus.UNMEASURED


def test_only_images_that_have_a_number_in_both_are_paired():
    """A flip distance is of images that a model is right on: here 160 of 200 are in both, all 30 % nearer."""
    values = np.random.default_rng(0).lognormal(size=200)
    older, newer = values.tolist(), (0.7 * values).tolist()
    older[:20] = [None] * 20
    newer[20:40] = [None] * 20
    middles = [float(np.median([value for value in these if value is not None])) for these in (older, newer)]
    last = report(distance(middles[0]), distances(older))
    now = report(distance(middles[1]), distances(newer))
    found = result_of(now, last, "flip_distance drops 10%")
    assert found.status is GateStatus.FAIL
    assert found.over == "paired over the 160 of 200 images that have a number in both"
    assert found.last == np.sort(values[40:])[79]
    assert (found.low, found.high) == (pytest.approx(-0.3), pytest.approx(-0.3))
    none = report(distance(0.0), distances([None] * 200))
    assert result_of(none, last, "flip_distance drops 10%").reason == "no image has a number in both reports"


@pytest.mark.parametrize(
    ("images", "status"), [(1, GateStatus.UNMEASURED), (5, GateStatus.UNMEASURED), (6, GateStatus.FAIL)]
)
def test_a_handful_of_images_has_no_interval(images, status):
    """All of five images are nearer by chance one time in sixteen: no interval of 95 % says that they are."""
    values = np.linspace(1.0, 2.0, images)
    last, now = (
        report(distance(factor * float(np.median(values))), distances(factor * values))
        for factor in (1.0, 0.5)
    )
    found = result_of(now, last, "flip_distance drops 10%")
    assert found.status is status
    assert found.reason == (
        "" if images == 6 else f"paired over {images} images: an interval needs 6 at least"
    )


def test_numbers_that_were_searched_for_otherwise_are_not_paired():
    last, now = (report(distance(1.0), distances([1.0] * 50, steps=steps)) for steps in (100, 20))
    found = result_of(now, last, "flip_distance drops 10%")
    assert found.status is GateStatus.UNMEASURED
    assert "or measured them in different ways" in found.reason


def test_accuracies_at_unequal_radii_are_not_compared():
    last, now = (report(*(robustness(0.5, seed, epsilon) for seed in range(3))) for epsilon in (0.1, 0.2))
    found = result_of(now, last, "robustness.robust_accuracy drops 1pt")
    assert found.status is GateStatus.UNMEASURED
    assert "epsilon is 0.1 in the older report, 0.2 in the newer" in str(found)
    same = report(*(robustness(0.2 + 0.001 * seed, seed, 0.1) for seed in range(3)))
    assert result_of(same, last, "robustness.robust_accuracy drops 1pt").status is GateStatus.FAIL


def test_what_a_report_lacks_is_told():
    found = result_of(of_images(wrong(3)), of_images(wrong(3)), "flip_distance drops 10%")
    assert found.status is GateStatus.UNMEASURED
    assert found.reason == (
        "the older report has no minimal_perturbation.median_flip[norm=inf]; make the audit "
        "minimal_perturbation of both models, or correct the name"
    )


def test_a_setting_that_no_number_has_is_named_with_those_that_numbers_have():
    some = report(distance(0.1, norm="inf"), distance(0.2, norm="2"))
    found = result_of(some, some, "minimal_perturbation.median_flip[norm=info] drops 10%")
    assert found.status is GateStatus.UNMEASURED
    assert found.reason == (
        "the older report has no minimal_perturbation.median_flip[norm=info]; its norm is one of 2, inf. Did you mean "
        "'inf'?"
    )


def test_which_number_is_meant_must_be_clear():
    two = report(distance(0.1, norm="inf"), distance(0.2, norm="2"))
    with pytest.raises(ValueError, match=r"is 2 numbers \(norm is inf, 2\); say which, as .*\[norm=inf,"):
        result_of(two, two, "minimal_perturbation.median_flip drops 10%")
    both = report(error(0.1, method="plain"), error(0.2, method="foca"))
    with pytest.raises(ValueError, match=r"of one method; got plain, foca. Name one: --method"):
        result_of(both, both, "accuracy drops 1pt")
    with pytest.raises(ValueError, match="`method` must be one of 'plain', 'foca'; got 'lgm'"):
        result_of(both, both, "accuracy drops 1pt", "lgm")


def test_the_named_method_is_taken():
    rows = [error(0.1 + 0.01 * s, s, method="plain") for s in range(3)]
    other = [error(0.5 + 0.02 * s, s, method="foca") for s in range(3)]
    last, now = (
        report(*rows, *other),
        report(*[error(0.3 + 0.01 * s, s, method="plain") for s in range(3)], *other),
    )
    assert result_of(now, last, "error rises 1pt", "plain").status is GateStatus.FAIL
    assert result_of(now, last, "error rises 1pt", "foca").status is GateStatus.PASS


def test_files_for_others_tell_all_of_it():
    last = of_images(wrong(50))
    texts = ["accuracy drops 1pt", "error drops 1pt", "flip_distance drops 10%"]
    results = check(of_images(wrong(100)), last, [Tolerance.parse(text) for text in texts])
    xml = junit(results)
    assert 'tests="3" failures="1" errors="1"' in xml
    assert xml.count("<testcase ") == 3
    table = markdown(results)
    assert table.startswith("### clearance check: failed\n")
    assert "| accuracy drops 1pt | failed | 95 % -> 90 % | -6." in table
    assert "| flip_distance drops 10% | not measured |" in table


def test_a_pass_that_proves_little_says_so_in_the_table_too():
    (found,) = check(
        of_images(wrong(52, start=10)), of_images(wrong(50)), [Tolerance.parse("accuracy drops 1pt")]
    )
    assert found.status is GateStatus.PASS
    assert (
        markdown([found])
        .rstrip()
        .endswith("| paired over 1000 images; too few images to exclude more than is tolerated |")
    )


def test_numbers_of_images_that_do_not_give_the_number_of_the_report_are_refused():
    """As where two audits were mixed: the number of one beside the images of the other."""
    right, wrong = of_images([0] * 90 + [1] * 10), of_images([0] * 50 + [1] * 50)
    mixed = replace(right, exhibits=wrong.exhibits)
    with pytest.raises(ValueError, match=r"newer report is damaged: .*accuracy\.error.* 0\.5, and .* 0\.1"):
        result_of(mixed, right, "accuracy drops 1pt")
    with pytest.raises(ValueError, match="older report is damaged"):
        result_of(right, mixed, "accuracy drops 1pt")
    with pytest.raises(ValueError, match=r"newer report is damaged: .*is nan"):
        result_of(report(error(0.1), wrong_images([0] * 99 + [float("nan")])), right, "accuracy drops 1pt")


def test_nan_is_no_number_and_passes_nothing():
    nan = float("nan")
    right = of_images([0] * 90 + [1] * 10)
    for now in (
        report(error(nan)),
        report(error(nan, 0), error(0.1, 1)),
        report(error(nan), wrong_images([nan] * 100)),
    ):
        for pair in ((now, right), (right, now)):
            found = result_of(*pair, "accuracy drops 1pt")
            assert found.status is GateStatus.UNMEASURED
            assert "has NaN for" in found.reason


def test_over_seeds_nan_passes_nothing():
    nan = float("nan")
    last, now = (
        report(*(error(value, seed) for seed, value in enumerate(row))) for row in ([0.1, 0.2], [nan, 0.2])
    )
    assert result_of(now, last, "accuracy drops 1pt").status is GateStatus.UNMEASURED


class TestInconclusive:
    LAST, NOISY = of_images(wrong(50)), of_images(wrong(52, start=10))

    @pytest.mark.parametrize(("taken_as", "status"), [("pass", "passed"), ("fail", "failed")])
    def test_an_interval_that_reaches_beyond_passes_or_fails_as_asked(self, taken_as, status):
        (found,) = check(
            self.NOISY, self.LAST, [Tolerance.parse("accuracy drops 1pt")], inconclusive=taken_as
        )
        assert found.status == status
        assert str(found).startswith(f"{status}: accuracy drops 1pt; 95.0 % -> 94.8 %")
        assert str(found).endswith("too few images to exclude more than is tolerated")

    def test_what_is_excluded_passes_either_way(self):
        tolerance = [Tolerance.parse("accuracy drops 5pt")]
        for taken_as in ("fail", "pass"):
            (found,) = check(self.NOISY, self.LAST, tolerance, inconclusive=taken_as)
            assert (found.status, found.doubt) == (GateStatus.PASS, "")


def of_group(values, **group):
    found = Measurement(
        "performance", "recall" if "class" in group else "accuracy", float(np.mean(values)), "fraction", len(values),
        better="higher", context={"split": "test", **group},
    )  # fmt: skip
    shown = Exhibit(
        "performance", found.name, "per_image", {"value": list(values)}, "Which.",
        {"split": "test", "images": "aa", **group},
    )  # fmt: skip
    return Record("pets", "mine", 0, found), ExhibitRecord("pets", "mine", 0, shown)


@pytest.mark.parametrize("group", [{"class": "cat, black"}, {"slice": "site=A"}])
def test_one_class_or_slice_is_compared_over_its_own_images(group):
    ((kind, name),) = group.items()
    others = of_group([1] * 50, **{kind: "other"})
    last, now = (report(*of_group([0] * bad + [1] * (200 - bad), **group), *others) for bad in (20, 60))
    dropped = result_of(now, last, f"accuracy[{kind}={name}] drops 5pt")
    assert dropped.status is GateStatus.FAIL
    assert (dropped.last, dropped.now) == (pytest.approx(0.9), pytest.approx(0.7))
    assert "paired over 200 images" in str(dropped)
    rose = result_of(now, last, f"error[{kind}={name}] rises 5pt")
    assert (rose.status, rose.now) == (GateStatus.FAIL, pytest.approx(0.3))
    assert result_of(now, last, f"accuracy[{kind}=other] drops").status is GateStatus.PASS
    nowhere = result_of(now, last, f"accuracy[{kind}=dog] drops 1pt")
    assert nowhere.status is GateStatus.UNMEASURED


@pytest.mark.parametrize(("kept", "status"), [(49, "not measured"), (50, "passed")])
def test_a_distance_of_fewer_than_half_of_the_images_is_not_passed(kept, status):
    values = [0.1] * kept + [None] * (100 - kept)
    told = report(distance(0.1), distances(values))
    found = result_of(told, told, "flip_distance drops 10%")
    assert found.status == status
    assert (f"the {kept} of 100 images that have a number in both" in str(found)) or kept == 50
    assert ("fewer than half" in markdown([found])) == (kept == 49)
    nearer = report(distance(0.05), distances([0.05] * kept + [None] * (100 - kept)))
    assert result_of(nearer, told, "flip_distance drops 10%").status is GateStatus.FAIL


def test_a_higher_level_is_a_wider_interval():
    last, now = of_images(wrong(100)), of_images(wrong(125))
    kept = [Tolerance.parse("accuracy changes")]
    (usual,), (sure,) = (check(now, last, kept, level=level) for level in (0.95, 0.999))
    assert None not in (sure.low, sure.high, usual.low, usual.high)
    assert float(sure.low or 0) < float(usual.low or 0) < float(usual.high or 0) < float(sure.high or 0)


@pytest.mark.parametrize(
    ("last", "now", "unit", "written"),
    [
        (0.987, 0.9444, "fraction", "98.70 % -> 94.44 %"),
        (0.95, 0.9, "fraction", "95 % -> 90 %"),
        (0.123, 4.0, "ratio", "0.123 -> 4.000"),
        (float("inf"), 0.5, "ratio", "inf -> 0.5"),
        (1.5e-6, 2.0, "ratio", "1.5e-06 -> 2"),
    ],
)
def test_both_numbers_have_as_many_decimals(last, now, unit, written):
    found = GateResult(Tolerance.parse("accuracy drops 1pt"), GateStatus.PASS, last, now, unit=unit)
    assert found.numbers == written


def test_fewer_than_six_images_decide_nothing():
    found = result_of(of_images([1] * 5), of_images([0] * 5), "accuracy drops 1pt")
    assert (found.status, found.reason) == (
        GateStatus.UNMEASURED,
        "paired over 5 images: an interval needs 6 at least",
    )
    assert result_of(of_images([1] * 6), of_images([0] * 6), "accuracy drops 1pt").status is GateStatus.FAIL


def test_one_error_in_many_is_not_written_as_none():
    one, none = of_images(wrong(1, 30_000)), of_images(wrong(0, 30_000))
    assert "100.000 % -> 99.997 %" in str(result_of(one, none, "accuracy drops 1pt"))


@pytest.mark.parametrize("tolerance", ["accuracy drops 1pt", "accuracy drops 1%", "accuracy drops 10%"])
def test_few_images_that_are_all_right_exclude_nothing(tolerance):
    right = report(error(0.0, n=6), wrong_images([0] * 6))
    (found,) = check(right, right, [Tolerance.parse(tolerance)], inconclusive="fail")
    assert found.status is GateStatus.FAIL
