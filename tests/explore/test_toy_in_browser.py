"""The figures of two pixels and of the scaled losses, moved in a browser and compared with `clearance.linear`."""

import math

import numpy as np
import pytest

from clearance.explore.exhibits import example_distances
from clearance.linear import Hyperplane, adversarial_distance, error_distance, error_rate, svm_path
from clearance.linear.loss_scaling import LOSSES, large_scale_limit, scaled_loss, small_scale_limit


def number(text):
    return float(text.split()[0].replace("−", "-").rstrip("°"))


def pair_of(text):
    return tuple(float(part.replace("−", "-")) for part in text.strip("()").split(","))


@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.99])
def test_i14_the_mirror_image_of_the_toy(opened, share):
    opened.slide("toy-angle", share)
    angle = share * math.pi / 2
    assert pair_of(opened.text("toy-at")) == (-0.8, 0)
    wanted = (0.8 * math.cos(2 * angle), 0.8 * math.sin(2 * angle))
    assert pair_of(opened.text("toy-mirror-at")) == pytest.approx(wanted, abs=0.0051)
    assert number(opened.text("toy-mirror-distance")) == pytest.approx(1.6 * math.cos(angle), abs=0.00051)
    assert number(opened.text("toy-distance")) == pytest.approx(0.8 * math.cos(angle), abs=0.00051)
    assert opened.text("toy-side") == "I"


def training(odd):
    places = np.r_[np.linspace(-1, -0.2, 50), np.linspace(0.2, 1, 50)]
    points = np.r_[np.c_[places, np.zeros(100)], [odd]]
    return points, np.r_[-np.ones(50), np.ones(50), -1]


@pytest.mark.parametrize("exponent", [-6, -5, -4, -3.2, -3, -2, -1, -0.5])
def test_the_toy_is_fitted_as_svm_path_fits_it(opened, exponent):
    opened.slide("odd-lambda", exponent)
    x, y = training((0.07, -0.07))
    (fit,) = svm_path(x, y, [10.0**exponent], tolerance=1e-9)
    degrees = math.degrees(math.atan2(fit.w[1], fit.w[0]))
    assert number(opened.text("odd-angle")) == pytest.approx(degrees, abs=0.051)
    assert number(opened.text("odd-margin")) == pytest.approx(1 / fit.plane.scale, abs=0.00051)
    assert number(opened.text("odd-adversarial")) == pytest.approx(
        adversarial_distance(fit.plane, x, y), abs=0.00051
    )
    assert opened.text("odd-wrong") == f"{round(101 * error_rate(fit.plane, x, y))} of 101"
    assert number(opened.text("odd-offset")) == pytest.approx(fit.b / fit.plane.scale, abs=0.00051)


@pytest.mark.parametrize(("exponent", "share"), [(-6, 0.3145), (-4, 0.3145), (-3, 0.049), (-2, 0.0078)])
def test_the_toy_leans_as_far_as_the_fact_sheet_says(opened, exponent, share):
    opened.slide("odd-lambda", exponent)
    assert number(opened.text("odd-angle")) == pytest.approx(90 * share, abs=0.1)
    assert opened.text("odd-right") == ("right" if exponent <= -4 else "wrong")


def test_the_odd_image_moves_by_keys_and_is_fitted_where_it_is(opened):
    opened.slide("odd-lambda", -5)
    opened.run("document.querySelector('#odd-plane .handle').focus()")
    opened.press("ArrowUp", 12)
    opened.press("ArrowLeft", 5, shift=True)
    odd = (0.07 - 5 * 0.002, -0.07 + 12 * 0.02)
    assert pair_of(opened.text("odd-at")) == pytest.approx(odd, abs=0.0051)
    x, y = training(odd)
    (fit,) = svm_path(x, y, [1e-5], tolerance=1e-9)
    assert number(opened.text("odd-angle")) == pytest.approx(
        math.degrees(math.atan2(fit.w[1], fit.w[0])), abs=0.051
    )
    opened.press("ArrowDown", 12)
    opened.press("ArrowRight", 5, shift=True)
    assert opened.text("odd-at") == "(0.07, −0.07)"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("exponent", [-1.5, 0, 1.5])
def test_scaled_losses_and_their_limits(opened, loss, exponent):
    opened.run(f"document.querySelector('input[value={loss}]').click()")
    opened.slide("loss-scale", exponent)
    z, scale, one = example_distances(), 10.0**exponent, Hyperplane.of([1.0])
    x, y = z[:, None], np.ones(len(z))
    assert number(opened.text("loss-risk")) == pytest.approx(
        float(scaled_loss(loss, z, scale).mean()), abs=5.1e-5
    )
    large, small = opened.text("loss-large"), opened.text("loss-small")
    if loss == "zero_one":
        assert (large, small) == ("none", "none")
        return
    known = LOSSES[loss]
    assert known.alpha is not None
    assert known.beta is not None
    assert number(large) == pytest.approx(scale * error_distance(one, x, y), abs=5.1e-5)
    line = known.alpha - known.beta * scale * adversarial_distance(one, x, y)
    assert number(small) == pytest.approx(line, abs=5.1e-5)


def curve(browser, kind):
    """A curve of the loss figure as {z: loss}, out of its place in the drawing."""
    path = browser.run(f"document.querySelector('#loss-plot .{kind}').getAttribute('d')")
    places = np.array([place.split() for place in path[1:].split("L")], dtype=float)
    z = -6 + 12 * (places[:, 0] - 46) / (720 - 46 - 16)
    return z, 5 - 5 * (places[:, 1] - 14) / (390 - 14 - 56)


@pytest.mark.parametrize("loss", ["hinge", "softplus"])
@pytest.mark.parametrize("exponent", [-0.6, 0.4])
def test_the_curves_are_the_scaled_loss_and_its_limits(opened, loss, exponent):
    opened.run(f"document.querySelector('input[value={loss}]').click()")
    opened.slide("loss-scale", exponent)
    scale = 10.0**exponent
    for kind, wanted in (
        ("loss.chosen", scaled_loss),
        ("limit.large", large_scale_limit),
        ("limit.small", small_scale_limit),
    ):
        z, drawn = curve(opened, kind)
        np.testing.assert_allclose(drawn, wanted(loss, z, scale).numpy(), atol=0.002 + 0.002 * scale)
        assert z.min() < -5.9
        assert z.max() > 5.9


def test_the_image_is_dragged_by_hand(opened):
    """Press on the handle, move to the right edge of the plane, a quarter from above: there a is 1 and b is 0.5."""
    opened.slide("toy-angle", 0)
    places = opened.run(
        "(() => {const s = document.getElementById('toy-plane');"
        " s.scrollIntoView({block: 'center', behavior: 'instant'});"
        " const m = s.getScreenCTM(); const at = (x, y) => {const p = new DOMPoint(x, y).matrixTransform(m);"
        " return [p.x, p.y]}; return [at(80, 280), at(530, 155), at(80, 280)]})()"
    )
    opened.drag(tuple(places[0]), tuple(places[1]))
    assert pair_of(opened.text("toy-at")) == pytest.approx((1, 0.5), abs=0.0051)
    assert opened.text("toy-side") == "J"
    assert pair_of(opened.text("toy-mirror-at")) == pytest.approx((-1, 0.5), abs=0.0051)
    opened.drag(tuple(places[1]), tuple(places[2]))
    assert pair_of(opened.text("toy-at")) == pytest.approx((-0.8, 0), abs=0.0051)
