"""Two reports and a tolerance: failed only where the interval excludes the tolerance, and not measured where "
"there is no interval."""

import numpy as np
import pytest

from clearance.gate import Outcome, Tolerance, junit, markdown, rule
from gate.reports import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    distance,
    distances,
    error,
    of_images,
    report,
    robustness,
    wrong_images,
)


def ruled(now, last, text, method=None):
    (found,) = rule(now, last, [Tolerance.parse(text)], method)
    return found


def wrong(count, n=1000, start=0):
    values = np.zeros(n, dtype=int)
    values[start : start + count] = 1
    return values.tolist()


def test_a_clear_drop_fails_and_noise_does_not():
    last = of_images(wrong(50))
    assert ruled(of_images(wrong(100)), last, "accuracy drops 1pt").outcome is Outcome.FAIL
    noisy = ruled(of_images(wrong(52, start=10)), last, "accuracy drops 1pt")
    assert noisy.outcome is Outcome.PASS
    assert "too few to exclude" in str(noisy)
    same = ruled(last, last, "accuracy drops 1pt")
    assert same.outcome is Outcome.PASS
    assert str(same).endswith("(95 %, paired over 1000 images)")


def test_pairing_sees_what_intervals_side_by_side_do_not():
    """25 more errors of 1000 on the same images: told apart, because no image changed the other way."""
    found = ruled(of_images(wrong(125)), of_images(wrong(100)), "accuracy drops 0.5pt")
    assert found.outcome is Outcome.FAIL
    assert (found.last, found.now) == (pytest.approx(0.9), pytest.approx(0.875))
    assert str(found).startswith("failed: accuracy drops 0.5pt; 90 % -> 87.5 %, change -3.")


def test_a_gain_never_fails_a_drop():
    last, now = of_images(wrong(200)), of_images(wrong(10))
    assert ruled(now, last, "accuracy drops 1pt").outcome is Outcome.PASS
    assert ruled(now, last, "accuracy rises 1pt").outcome is Outcome.FAIL
    assert ruled(now, last, "error drops 1pt").outcome is Outcome.FAIL
    assert ruled(now, last, "accuracy changes 1pt").outcome is Outcome.FAIL


def test_shares_are_of_the_older_number():
    last, now = of_images(wrong(100)), of_images(wrong(180))  # 0.90 -> 0.82 is 8.9 % less
    assert ruled(now, last, "accuracy drops 5%").outcome is Outcome.FAIL
    assert ruled(now, last, "accuracy drops 9%").outcome is Outcome.PASS


def test_other_images_are_not_paired():
    last, now = of_images(wrong(100), images="aa"), of_images(wrong(900), images="bb")
    found = ruled(now, last, "accuracy drops 1pt")
    assert found.outcome is Outcome.UNMEASURED
    assert found.reason == (
        "the reports are of different images, or measured them in different ways, and have 1 seed in common; "
        "2 are needed"
    )


def test_different_seeds_of_one_model_each_are_the_same_images():
    assert (
        ruled(of_images(wrong(300), seed=4), of_images(wrong(1), seed=0), "accuracy drops 1pt").outcome
        is Outcome.FAIL
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
    found = ruled(report(*more), report(*rows), "accuracy drops 1pt")
    assert found.outcome is Outcome.FAIL
    assert found.over == "paired over 1000 images"
    assert (found.last, found.now) == (pytest.approx(0.9), pytest.approx(0.8))


def test_without_images_it_is_over_seeds():
    last = report(*[error(0.10 + 0.001 * seed, seed) for seed in range(4)])
    now = report(*[error(0.15 + 0.001 * seed**2, seed) for seed in range(4)])
    found = ruled(now, last, "accuracy drops 1pt")
    assert found.outcome is Outcome.FAIL
    assert found.over == "paired over 4 seeds"
    assert ruled(now, last, "accuracy drops 10pt").outcome is Outcome.PASS
    lonely = ruled(report(error(0.9)), report(error(0.1)), "accuracy drops 1pt")
    assert lonely.outcome is Outcome.UNMEASURED
    assert "keep no numbers of single images for it, and have 1 seed in common" in lonely.reason


def test_points_are_of_fractions_alone():
    kept = report(distance(1.0), distances([1.0] * 50))
    with pytest.raises(
        ValueError,
        match=r"points are of fractions, and minimal_perturbation.median_flip is in pixel units; got",
    ):
        ruled(kept, kept, "flip_distance drops 1pt")


def test_medians_of_distances():
    values = np.random.default_rng(0).lognormal(size=200)
    last = report(distance(float(np.median(values))), distances(values))
    now = report(distance(float(np.median(0.7 * values))), distances(0.7 * values))
    found = ruled(now, last, "flip_distance drops 10%")
    assert found.outcome is Outcome.FAIL
    assert (found.low, found.high) == (pytest.approx(-0.3), pytest.approx(-0.3))
    assert ruled(now, last, "flip_distance drops 40%").outcome is Outcome.PASS
    nothing = report(distance(0.0), distances(np.zeros(200)))
    assert ruled(now, nothing, "flip_distance drops 10%").outcome is Outcome.UNMEASURED


def test_only_images_that_have_a_number_in_both_are_paired():
    """A flip distance is of images that a model is right on: here 160 of 200 are in both, all 30 % nearer."""
    values = np.random.default_rng(0).lognormal(size=200)
    older, newer = values.tolist(), (0.7 * values).tolist()
    older[:20] = [None] * 20
    newer[20:40] = [None] * 20
    last, now = report(distance(1.0), distances(older)), report(distance(0.7), distances(newer))
    found = ruled(now, last, "flip_distance drops 10%")
    assert found.outcome is Outcome.FAIL
    assert found.over == "paired over the 160 of 200 images that have a number in both"
    assert found.last == np.sort(values[40:])[79]
    assert (found.low, found.high) == (pytest.approx(-0.3), pytest.approx(-0.3))
    none = report(distance(0.0), distances([None] * 200))
    assert ruled(none, last, "flip_distance drops 10%").reason == "no image has a number in both reports"


@pytest.mark.parametrize(
    ("images", "outcome"), [(1, Outcome.UNMEASURED), (5, Outcome.UNMEASURED), (6, Outcome.FAIL)]
)
def test_a_handful_of_images_has_no_interval(images, outcome):
    """All of five images are nearer by chance one time in sixteen: no interval of 95 % says that they are."""
    values = np.linspace(1.0, 2.0, images)
    last, now = (report(distance(1.0), distances(factor * values)) for factor in (1.0, 0.5))
    found = ruled(now, last, "flip_distance drops 10%")
    assert found.outcome is outcome
    assert found.reason == (
        "" if images == 6 else f"paired over {images} images: an interval needs 6 at least"
    )


def test_numbers_that_were_searched_for_otherwise_are_not_paired():
    last, now = (report(distance(1.0), distances([1.0] * 50, steps=steps)) for steps in (100, 20))
    found = ruled(now, last, "flip_distance drops 10%")
    assert found.outcome is Outcome.UNMEASURED
    assert "or measured them in different ways" in found.reason


def test_accuracies_at_unequal_radii_are_not_compared():
    last, now = (report(*(robustness(0.5, seed, epsilon) for seed in range(3))) for epsilon in (0.1, 0.2))
    found = ruled(now, last, "robustness.robust_accuracy drops 1pt")
    assert found.outcome is Outcome.UNMEASURED
    assert "epsilon is 0.1 in the older report, 0.2 in the newer" in str(found)
    same = report(*(robustness(0.2 + 0.001 * seed, seed, 0.1) for seed in range(3)))
    assert ruled(same, last, "robustness.robust_accuracy drops 1pt").outcome is Outcome.FAIL


def test_what_a_report_lacks_is_told():
    found = ruled(of_images(wrong(3)), of_images(wrong(3)), "flip_distance drops 10%")
    assert found.outcome is Outcome.UNMEASURED
    assert found.reason == "the older report has no minimal_perturbation.median_flip[norm=inf]"


def test_which_number_is_meant_must_be_clear():
    two = report(distance(0.1, norm="inf"), distance(0.2, norm="2"))
    with pytest.raises(ValueError, match=r"is 2 numbers \(norm is inf, 2\); say which, as .*\[norm=inf,"):
        ruled(two, two, "minimal_perturbation.median_flip drops 10%")
    both = report(error(0.1, method="plain"), error(0.2, method="foca"))
    with pytest.raises(ValueError, match=r"of one method; got plain, foca. Name one: --method"):
        ruled(both, both, "accuracy drops 1pt")
    with pytest.raises(ValueError, match="`method` must be one of 'plain', 'foca'; got 'lgm'"):
        ruled(both, both, "accuracy drops 1pt", "lgm")


def test_the_named_method_is_taken():
    rows = [error(0.1 + 0.01 * s, s, method="plain") for s in range(3)]
    other = [error(0.5 + 0.02 * s, s, method="foca") for s in range(3)]
    last, now = (
        report(*rows, *other),
        report(*[error(0.3 + 0.01 * s, s, method="plain") for s in range(3)], *other),
    )
    assert ruled(now, last, "error rises 1pt", "plain").outcome is Outcome.FAIL
    assert ruled(now, last, "error rises 1pt", "foca").outcome is Outcome.PASS


def test_files_for_others_tell_all_of_it():
    last = of_images(wrong(50))
    texts = ["accuracy drops 1pt", "error drops 1pt", "flip_distance drops 10%"]
    rulings = rule(of_images(wrong(100)), last, [Tolerance.parse(text) for text in texts])
    xml = junit(rulings)
    assert 'tests="3" failures="1" errors="1"' in xml
    assert xml.count("<testcase ") == 3
    table = markdown(rulings)
    assert table.startswith("### clearance check: failed\n")
    assert "| accuracy drops 1pt | failed | 95 % -> 90 % | -6." in table
    assert "| flip_distance drops 10% | not measured |" in table


def test_a_pass_that_proves_little_says_so_in_the_table_too():
    (found,) = rule(
        of_images(wrong(52, start=10)), of_images(wrong(50)), [Tolerance.parse("accuracy drops 1pt")]
    )
    assert found.outcome is Outcome.PASS
    assert (
        markdown([found])
        .rstrip()
        .endswith("| paired over 1000 images; too few to exclude more than is tolerated |")
    )
