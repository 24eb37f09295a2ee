"""Every checkable property of the large-margin loss has a test that carries its number."""

import ast
from pathlib import Path

PROPERTIES = [f"p{number:02d}" for number in range(1, 21)]


def numbers_of(text):
    """The numbers in the names of a file's tests: test_p04_... has p04."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return {node.name.split("_")[1] for node in functions if node.name.startswith("test_")}


def test_every_number_has_a_test():
    files = [path for path in Path(__file__).parent.glob("test_large_margin_*.py") if path != Path(__file__)]
    tested = set().union(*(numbers_of(path.read_text("utf-8")) for path in files))
    assert set(PROPERTIES) - tested == set()
