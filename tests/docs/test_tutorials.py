"""The tutorials run, cell by cell, keep what they promise, and are built as they stand here."""

import re
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.md"))
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
SLOW = {"audit_hugging_face", "foca_backbone", "noisy_labels"}


def text_of(name):
    return (TUTORIALS / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMES]
)
@pytest.mark.filterwarnings("ignore:.*")  # of the packages that a tutorial brings in
def test_a_tutorial_runs(name, tmp_path, monkeypatch, capsys):
    """Its cells are run as they are shown; their assertions are what the page promises."""
    monkeypatch.chdir(tmp_path)
    if "import transformers" in text_of(name):
        pytest.importorskip("transformers", reason=f"the tutorial {name} has not been run: no transformers")
    cells = CELL.findall(text_of(name))
    assert any("assert " in cell for cell in cells)
    namespace = {"__name__": "__tutorial__"}
    with warnings.catch_warnings():
        for place, cell in enumerate(cells):
            exec(compile(cell, f"{name}, cell {place + 1}", "exec"), namespace)
    plt.close("all")


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_says_what_the_reader_gets_and_what_comes_next(name):
    text = text_of(name)
    after_the_title = re.split(r"^# .+\n", text, maxsplit=1, flags=re.MULTILINE)[1].strip()
    assert "After this page" in " ".join(after_the_title.splitlines()[:3])
    assert re.search(r"^## Next\n\n- .*\]\(", text, re.MULTILINE)
    assert text.count("```{code-cell}") == len(CELL.findall(text))
