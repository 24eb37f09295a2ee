"""The page for every hand and eye: keys, labels, what is said aloud, dark, narrow, without motion, and an address."""

import pytest

from clearance.experiments.explore import explored_dataset
from clearance.explore import write_explorer


def test_every_slider_moves_by_keys_and_says_where_it_is(opened):
    for name, key in (
        ("toy-angle", "Home"),
        ("odd-lambda", "End"),
        ("loss-scale", "Home"),
        ("pair-lambda", "End"),
    ):
        opened.run(f"document.getElementById({name!r}).focus()")
        before = opened.text(f"{name}-value")
        opened.press(key)
        assert opened.text(f"{name}-value") != before
        assert opened.run(f"document.getElementById({name!r}).getAttribute('aria-valuetext').length") > 3
    assert opened.text("pair-lambda-value") == "102.0"
    assert opened.text("pair-angle") == "0.000"


def test_the_tabulator_reaches_everything_that_moves(opened):
    opened.run("document.querySelector('a').focus()")
    reached = set()
    for _ in range(18):
        opened.press("Tab")
        reached.add(opened.run("document.activeElement.id || document.activeElement.getAttribute('class')"))
    assert {
        "toy-angle",
        "odd-lambda",
        "loss-scale",
        "pair-lambda",
        "sample-x",
        "sample-y",
        "handle",
    } <= reached


def test_everything_that_moves_has_a_name(opened):
    unnamed = opened.run(
        "Array.from(document.querySelectorAll('input, select')).filter((e) => !e.labels.length).map((e) => e.id)"
    )
    assert unnamed == []
    pictures = opened.run(
        "Array.from(document.querySelectorAll('main svg, main canvas'))"
        ".filter((e) => !e.getAttribute('aria-label') && e.getAttribute('aria-hidden') !== 'true').map((e) => e.id)"
    )
    assert pictures == []
    label = opened.run("document.querySelector('#toy-plane .handle').getAttribute('aria-label')")
    assert label.startswith("Your image, at −0.80 and 0.00")


def test_what_changed_is_said_once_the_hand_rests(opened):
    opened.slide("pair-lambda", 33)
    opened.wait("document.getElementById('announced').textContent.includes('power −2.7')")
    assert opened.run("document.getElementById('announced').getAttribute('aria-live')") == "polite"
    said = opened.text("announced")
    assert f"test error {opened.text('pair-test')}" in said


def test_dark_pages_repaint_what_is_painted(browser, digits):
    """The corner of a digit has no weight: it shows the paper, a moment after the paper has changed."""
    corner = "document.getElementById('picture-w').getContext('2d').getImageData(0, 0, 1, 1).data.slice(0, 3).join()"
    browser.prefer(color_scheme="light")
    browser.open(digits.path)
    browser.wait(f"{corner} === '255,255,255'")
    browser.prefer(color_scheme="dark")
    browser.wait(f"{corner} === '20,24,29'")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    browser.prefer(color_scheme="light")


@pytest.mark.parametrize("width", [420, 1280])
def test_nothing_is_wider_than_the_window(browser, digits, width):
    browser.open(digits.path, width=width)
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.errors == []


def test_nothing_glides_for_who_wants_no_motion(browser, digits):
    browser.prefer(reduced_motion="reduce")
    browser.open(digits.path)
    assert browser.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    browser.prefer(reduced_motion="no-preference")
    assert browser.run("getComputedStyle(document.documentElement).scrollBehavior") == "smooth"


def test_a_click_chooses_the_nearest_sample(opened):
    opened.slide("sample-x", 3)
    place = opened.run(
        "(() => {document.getElementById('pair-plane').scrollIntoView({block: 'center', behavior: 'instant'});"
        " const box = document.querySelector('#pair-plane .picked').getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]})()"
    )
    opened.slide("sample-x", 40)
    opened.drag(tuple(place), tuple(place))
    assert opened.run("document.getElementById('sample-x').value") == "3"


def test_the_address_opens_a_pair_at_a_step(browser, tmp_path):
    scene = explored_dataset("digits", ("all",), per_class=6)
    page = write_explorer(scene, tmp_path / "all.html")
    browser.open(page, "#pair=4-9&step=11")
    assert browser.run("document.getElementById('pair-choice').selectedOptions[0].text") == "4 against 9"
    assert browser.run("document.getElementById('pair-lambda').value") == "11"
    assert browser.text("pair-train-count") == "0 of 12"
    browser.run(
        "{const c = document.getElementById('pair-choice'); c.value = '0'; c.dispatchEvent(new Event('change'))}"
    )
    browser.wait("location.hash === '#pair=0-1&step=40'")
    assert browser.run("document.querySelector('h2 [data-class=j]').textContent") == "1"
