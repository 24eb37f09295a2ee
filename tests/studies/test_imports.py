"""Studies stand on the library's public names and on the room for researchers, and the library knows no study."""

import ast
import importlib
import types
from pathlib import Path

import pytest

import clearance
from clearance import research

ROOT = Path(__file__).parents[2]
PAPERS = sorted((ROOT / "papers").rglob("*.py"))
LIBRARY = sorted((ROOT / "src").rglob("*.py"))


def imported(path):
    """Every name that a file imports, with the module that it takes it from."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


def public_rooms():
    """The rooms that the library names at its top, and the one for researchers."""
    rooms = [name for name in clearance.__all__ if isinstance(getattr(clearance, name), types.ModuleType)]
    return {"clearance", "clearance.research", *(f"clearance.{name}" for name in rooms)}


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_study_imports_public_names_alone(path):
    rooms = public_rooms()
    for module, name in imported(path):
        if module.split(".")[0] == "clearance":
            assert module in rooms, module
            assert name is None or name in importlib.import_module(module).__all__, f"{module}.{name}"


def test_the_room_for_researchers_has_nothing_that_no_study_needs():
    asked = {name for path in PAPERS for module, name in imported(path) if module == "clearance.research"}
    assert asked == set(research.__all__)


@pytest.mark.parametrize("name", research.__all__)
def test_every_name_of_the_room_for_researchers_is_described(name):
    assert f"`{name}`" in (research.__doc__ or "")


def test_the_library_imports_no_study():
    assert not [path for path in LIBRARY for module, _ in imported(path) if module.split(".")[0] == "papers"]
