"""Invented reports and the pages made of them."""

import pytest
from markupsafe import Markup

from clearance.report import pictures
from clearance.report.audits import co_adaptation
from clearance.report.page import render_page, write_page
from report.invented import Invented
from report.invented_paper import InventedPaper


@pytest.fixture(scope="session")
def paper():
    """Two methods, three seeds, every audit, made up."""
    return InventedPaper(
        methods=("plain", "foca"), heads=("retrained", "class mean"), pictures=False
    ).report()


@pytest.fixture
def invented():
    """`Invented(...)`, to build a report of made-up numbers from."""
    return Invented


@pytest.fixture(scope="session")
def comparison():
    """Four methods, three seeds, made up."""
    return Invented().report()


@pytest.fixture(scope="session")
def lean():
    """Two methods, one way to rebuild the last layers, no pictures but the curve: quick to draw."""
    return Invented(methods=("plain", "foca"), heads=("retrained",), pictures=False).report()


@pytest.fixture(scope="session")
def single():
    """One network, made up."""
    return Invented(methods=("model",), seeds=1).report()


@pytest.fixture(scope="session")
def folder(comparison, tmp_path_factory):
    return write_page(comparison, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="session")
def page(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def single_page(single):
    return render_page(single)


@pytest.fixture(scope="session")
def paper_folder(paper, tmp_path_factory):
    return write_page(paper, tmp_path_factory.mktemp("paper")).parent


@pytest.fixture(scope="session")
def paper_page(paper_folder):
    return (paper_folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def leave_undrawn():
    """A function: pictures are made, but not turned into SVG, which takes a hundred times as long."""

    def leave(patch):
        for module in (pictures, co_adaptation):
            patch.setattr(module, "as_svg", lambda figure, name, title: Markup("<svg></svg>"))

    return leave


@pytest.fixture
def undrawn(monkeypatch, leave_undrawn):
    """No picture is turned into SVG."""
    leave_undrawn(monkeypatch)
