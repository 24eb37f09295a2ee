"""The block of docs/attacks.md that needs ART, which is slow to import."""

import re
from pathlib import Path

import pytest
import torch

from clearance.attacks import FGSM

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_block_for_art_runs(tmp_path, monkeypatch):
    pytest.importorskip("art", reason="ART is not installed: its block in docs/attacks.md has not been run")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    found = FENCE.findall(PAGE)
    (block,) = [code for language, code in found if language == "py"]
    first = next(code for language, code in found if language == "python")
    names: dict = {"__name__": "__document__"}
    exec(compile(first, "docs/attacks.md, first block", "exec"), names)
    exec(compile(block, "docs/attacks.md, ART", "exec"), names)
    ours = FGSM(0.1)(names["model"], names["images"], names["labels"])
    torch.testing.assert_close(names["fast"].images, ours.images, rtol=0, atol=1e-6)
    assert names["theirs"].success_rate >= ours.success_rate
