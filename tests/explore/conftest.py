"""A page, the machines on it, and a browser to try it in."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from chromium import Chromium, found
from clearance.experiments.explore import explored_dataset
from clearance.explore.machines import Machines, all_machines
from clearance.explore.page import render_explorer
from clearance.explore.scene import Scene


@dataclass(frozen=True)
class Made:
    """A page with what it was made of."""

    path: Path
    scene: Scene
    machines: list[Machines]


def made(scene, folder):
    machines = all_machines(scene)
    folder.mkdir(exist_ok=True)
    path = folder / f"{scene.name}.html"
    path.write_text(render_explorer(scene, machines), encoding="utf-8")
    return Made(path, scene, machines)


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def leaning(pages):
    """The page of scikit-learn's 5 and 9, one of whose machines leans by a thousandth of a radian."""
    return made(explored_dataset("digits", ("5", "9")), pages / "leaning")


@pytest.fixture(scope="session")
def digits(pages):
    """The page of scikit-learn's 3 and 8."""
    return made(explored_dataset("digits"), pages)


@pytest.fixture(scope="session")
def mnist(pages):
    """The page of MNIST's 2 and 3; skipped, loudly, where there is none."""
    root = os.environ.get("CLEARANCE_DATA")
    if not root:
        pytest.skip("no real data: CLEARANCE_DATA is not set")
    return made(explored_dataset("mnist", root=root), pages)


@pytest.fixture(scope="session")
def program():
    """A Chromium to start; without one the page is not tried, and the skip says so."""
    path = found()
    if path is None:
        pytest.skip("no Chromium: the interactive page was not tried in a browser; see CLEARANCE_CHROMIUM")
    return path


@pytest.fixture(scope="session")
def browser(program):
    with Chromium(program) as started:
        yield started


@pytest.fixture(scope="module")
def opened(browser, digits):
    """The browser with the page of digits, at 1280 pixels, light, and without gliding to what has the focus."""
    browser.prefer(color_scheme="light", reduced_motion="reduce")
    browser.open(digits.path)
    return browser
