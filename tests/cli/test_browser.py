"""A page is opened where there is a desktop, when it is asked for, and by the demonstration in a terminal."""

import sys

import pytest

from clearance.cli import audit
from clearance.records import Report
from clearance.report import Card


@pytest.fixture
def opened(monkeypatch):
    """What was given to the browser."""
    given: list[str] = []

    def shown(uri: str) -> bool:
        given.append(uri)
        return True

    monkeypatch.setattr(audit.webbrowser, "open", shown)
    return given


@pytest.mark.parametrize("name", ["DISPLAY", "WAYLAND_DISPLAY"])
def test_a_desktop_shows_the_page(name, opened, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv(name, ":0")
    assert audit.open_page(tmp_path / "index.html")
    assert opened == [(tmp_path / "index.html").resolve().as_uri()]


def test_without_a_desktop_nothing_is_opened(opened, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not audit.open_page(tmp_path / "index.html")
    assert opened == []


@pytest.mark.parametrize(
    ("model", "settings", "terminal", "shown"),
    [
        ("demo", {}, True, True),
        ("demo", {}, False, False),
        ("demo", {"quiet": True}, True, False),
        ("demo", {"json": True}, True, False),
        ("a-run", {}, True, False),
        ("a-run", {"open": True}, False, True),
    ],
)
def test_who_opens_it(model, settings, terminal, shown, opened, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(audit.AuditCommand, "_card", lambda self, console: Card(Report({}, {}, "", "")))
    audit.AuditCommand(model, **settings).run()
    assert bool(opened) is shown
