"""Every statement that is numbered has a test that carries its number: theory, and what a user can step into.

L1 to L3 are Lemma 3.1 of Sato et al. (2019), Q1 to Q9 their Proposition 3.2 on free features; the rest are numbers of
the project's fact sheet on that paper: 1.3 the conventions of the penalty, 2.5 PCA and discriminants, 3.5 the
pitfalls, 4.3 heads in closed form, 4.6 the metrics.
"""

import ast
import re
from pathlib import Path

import pytest

THEORY = ["l1", "l2", "l3", *(f"q{number:02d}" for number in range(1, 10))]
PITFALLS = [f"3_5_{number}" for number in range(1, 11) if number != 7]  # 7, that ReLU breaks the lemma, is L3
SHEET = ["1_3", "2_5", *PITFALLS, "4_3", "4_6"]
TESTS = Path(__file__).parents[1]


def numbers_of(text):
    """The numbers in the names of a file's tests: test_q04_... has q04, and test_3_5_1_... has 3_5_1."""
    names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    found = (re.match(r"test_([lq]\d+|\d(?:_\d+)+)_", name) for name in names)
    return {match[1] for match in found if match}


@pytest.fixture(scope="module")
def tested():
    """The numbers of all tests."""
    return set().union(*(numbers_of(path.read_text("utf-8")) for path in TESTS.rglob("test_*.py")))


@pytest.mark.parametrize("number", [*THEORY, *SHEET])
def test_every_number_has_a_test(number, tested):
    assert number in tested
