"""The figures of two classes: what the browser computes from the samples equals what `clearance.linear` computes."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest

from clearance.data.digits import read_digits
from clearance.data.idx import read_idx
from clearance.explore.machines import LOG_LAMBDAS
from clearance.linear import adversarial_distance, error_distance, svm_path, tilting_plane
from clearance.linear.hyperplane import mirrored, signed_distances, wrong

STEPS = (20, 40, 68)


def raw_digits(split):
    data = read_digits(split)
    most = 126 if split == "train" else None  # as many of each class as the smaller has
    return data, [data.images[data.labels == digit][:most].flatten(1).double().numpy() for digit in (3, 8)]


def raw_mnist(split):
    data = read_idx(Path(os.environ["CLEARANCE_DATA"], "mnist"), split)
    return data, [data.images[data.labels == digit][:3000].flatten(1).double().numpy() for digit in (2, 3)]


@functools.cache
def exact(raw):
    """The machines of a pair, none of which the page had anything to do with."""
    x, y = labelled(raw("train")[1])
    return svm_path(x, y, 10**LOG_LAMBDAS)


def labelled(parts):
    return np.concatenate(parts), np.repeat([-1.0, 1.0], [len(part) for part in parts])


def shown(browser, *names):
    return [browser.text(f"pair-{name}").replace("−", "-") for name in names]


def check_step(browser, raw, step):
    """Every number that the page prints at a step, against `svm_path` on the samples as they were read."""
    (x, y), (held_out, held_out_y) = (labelled(raw(split)[1]) for split in ("train", "test"))
    plane = exact(raw)[step].plane
    browser.slide("pair-lambda", step)
    seen = tilting_plane(plane, x, y)
    balanced = adversarial_distance(plane, x, y, class_balanced=True)
    assert shown(browser, "angle", "adversarial") == [f"{seen.angle:.3f}", f"{balanced:.3f}"]
    for name, points, labels in (("train", x, y), ("test", held_out, held_out_y)):
        count = int(wrong(plane, points, labels).sum())
        wanted = [f"{100 * count / len(labels):.2f} %", f"{count} of {len(labels)}"]
        assert shown(browser, name, f"{name}-count") == wanted
    depth = error_distance(plane, x, y, class_balanced=True)
    assert shown(browser, "error-distance", "margin") == [f"{depth:.4f}", f"{1 / plane.scale:.3f}"]
    assert shown(browser, "offset") == [f"{seen.offset:.3f}"]


@pytest.mark.parametrize("step", STEPS)
def test_three_positions_on_digits(opened, step):
    check_step(opened, raw_digits, step)


@pytest.mark.slow
def test_three_positions_of_2_against_3(browser, mnist, digits):
    browser.open(mnist.path)
    try:
        for step in STEPS:
            check_step(browser, raw_mnist, step)
    finally:
        browser.open(digits.path)  # there is one browser, and other tests of this file rely on that page
    assert mnist.path.stat().st_size <= 8_000_000


@pytest.mark.slow
def test_2_against_3_is_the_exact_solution(mnist):
    """The machines that the page holds, against an independent exact re-solution."""
    folder = os.environ.get("CLEARANCE_TRUTH")
    if not folder:
        pytest.skip("no numbers to meet: CLEARANCE_TRUTH is not set")
    rows = np.genfromtxt(Path(folder, "l2", "l2_resolved.csv"), delimiter=",", names=True)
    x, y = labelled(raw_mnist("train")[1])
    for step in STEPS:
        (row,) = rows[(rows["i"] == 2) & (rows["j"] == 3) & (rows["col"] == 80 - step)]
        assert row["log10_lambda"] == pytest.approx(LOG_LAMBDAS[step])
        plane = mnist.machines[0].plane(step)
        assert tilting_plane(plane, x, y).angle == pytest.approx(row["theta_rad"], abs=5e-4)
        assert adversarial_distance(plane, x, y) == pytest.approx(row["d_adv"], abs=5e-4)


def pixels(browser, name):
    """The grey levels of a canvas."""
    return np.array(
        browser.run(
            f"(() => {{const c = document.getElementById({name!r});"
            " return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)})()"
        )
    ).reshape(-1, 4)


def test_mirror_images_share_one_range_with_their_samples(opened, digits):
    plane = digits.machines[0].plane(30)
    parts = raw_digits("train")[1]
    for name, at in (("x", 5), ("y", 11)):
        opened.slide(f"sample-{name}", at)
    opened.slide("pair-lambda", 30)
    samples = {"x": parts[0][5], "y": parts[1][11]}
    wanted = dict(samples)
    for name, sample in samples.items():
        wanted[f"{name}-mirror"] = mirrored(plane, sample[None])[0].numpy()
    low, high = min(one.min() for one in wanted.values()), max(one.max() for one in wanted.values())
    assert low < 0  # mirror images leave the range of pixels and are not clipped
    for name, image in wanted.items():
        grey = pixels(opened, f"picture-{name}")
        assert np.abs(grey[:, 0] - 255 * (image - low) / (high - low)).max() <= 0.51
        assert (grey[:, 0] == grey[:, 2]).all()


def drawn_in_the_plane(browser, seen, sample, mirror, step):
    """Check the first class's marked sample and its mirror image; the drawing's middle and unit."""
    browser.slide("sample-x", 5)
    browser.slide("pair-lambda", step)
    marks = browser.run(
        "Array.from(document.querySelectorAll('#pair-plane .centroid, #pair-plane .picked'))"
        ".map((c) => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))])"
    )
    (left, right), (marked, mirrored_mark) = np.array(marks[:2]), np.array(marks[2:4])
    unit = (right[0] - left[0]) / seen.separation  # both means lie on the horizontal axis
    middle = (left + right) / 2
    for place, at in ((marked, sample), (mirrored_mark, mirror)):
        found = (place - middle) / unit * [1, -1]
        np.testing.assert_allclose(found, seen.coordinates(at)[0].numpy(), atol=2e-3)
    return middle, unit


def test_a_small_angle_is_the_machine_s_own(browser, digits, leaning):
    """Where the plateau ends it leans by a thousandth: places are those of that machine, not of the next one's lean."""
    plane, (x, y) = leaning.machines[0].plane(59), leaning.scene.pair(0, 1)
    seen, sample = tilting_plane(plane, x, y), x[5][None]
    assert 1e-6 < seen.angle < 1e-3
    browser.open(leaning.path)
    try:
        drawn_in_the_plane(browser, seen, sample, mirrored(plane, sample).numpy(), 59)
    finally:
        browser.open(digits.path)


def test_the_drawn_points_lie_where_the_tilting_plane_puts_them(opened, digits):
    """The two samples that are marked on the plane, and their mirror images, in the drawing's own units."""
    plane = digits.machines[0].plane(30)
    parts = raw_digits("train")[1]
    x, y = labelled(parts)
    seen, sample = tilting_plane(plane, x, y), parts[0][5][None]
    middle, unit = drawn_in_the_plane(opened, seen, sample, mirrored(plane, sample).numpy(), 30)
    line = opened.run("document.querySelector('#pair-plane .boundary').getAttribute('d')")
    ends = np.array([part.split() for part in line[1:].split("L")], dtype=float)
    along = (ends[1] - ends[0]) / unit * [1, -1]
    normal = np.array([np.cos(seen.angle), np.sin(seen.angle)])
    assert abs(along @ normal) <= 1e-3 * np.linalg.norm(along)
    assert abs((ends[0] - middle) / unit * [1, -1] @ normal + seen.offset) <= 5e-3


def test_the_bars_are_the_histogram_of_signed_distances(opened, digits):
    plane = digits.machines[0].plane(50)
    x, y = labelled(raw_digits("train")[1])
    opened.slide("pair-lambda", 50)
    margins = (y * signed_distances(plane, x).numpy())[y < 0]
    path = opened.run("document.querySelector('#pair-histogram .bars.i').getAttribute('d')")
    heights = [float(step.split("H")[0]) for step in path.split("V")[1:-1]]
    base = float(path.split(" ")[1].split("V")[0])
    counts = base - np.array(heights)
    reach = opened.run(
        "Number(document.querySelectorAll('#pair-histogram .tick')[0].textContent.replace('−', '-'))"
    )
    assert len(counts) == 80
    # the axis is symmetric: the share below 0 is that of the errors, and the mean of the bars that of the margins
    assert counts[:40].sum() / counts.sum() == pytest.approx((margins < 0).mean(), abs=0.01)
    axis = opened.run("document.querySelectorAll('#pair-histogram .tick')[0].getAttribute('x')")
    unit = (360 - float(axis)) / -reach
    centres = (34 + (np.arange(80) + 0.5) * (720 - 68) / 80 - 360) / unit
    assert (counts @ centres) / counts.sum() == pytest.approx(margins.mean(), abs=0.02)
