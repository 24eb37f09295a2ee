"""Every identity that is numbered has a test that carries its number."""

import ast
from pathlib import Path

IDENTITIES = [f"i{number:02d}" for number in range(1, 20)]


def numbers_of(text):
    """The numbers in the names of a file's tests: test_i04_... has i04."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return {node.name.split("_")[1] for node in functions if node.name.startswith("test_")}


def test_every_number_has_a_test():
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    tested = set().union(*(numbers_of(path.read_text("utf-8")) for path in files))
    assert set(IDENTITIES) - tested == set()
