"""The page of an audit in a real browser: sorted, filtered, by keyboard, narrow, dark, without JavaScript, by axe-core.

axe-core is looked for where CLEARANCE_AXE says, and in ``node_modules`` (``npm install --no-save axe-core``).
"""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

import clearance as cl
from chromium import Chromium, found

AUDITS = ["accuracy", "duplicates", "label_suspects", "set_facts", "performance", "mistakes", "calibration"]
FEW = {"co_adaptation": {"repetitions": [2, 2], "per_class": [1, 10]}}
ROW = "[...document.querySelectorAll('table.sortable')].find(t => t.tHead.textContent.includes('recall'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of a poor classifier, so that there are mistakes to show."""
    train, test = cl.load_dataset("digits").per_class(60, seed=0), cl.load_dataset("digits", split="test")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(train.images), train.labels).backward()
        optimizer.step()
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    card = cl.audit(model, train=train, test=test, audits=[*AUDITS, "co_adaptation"], audit_settings=FEW)
    return card.save(tmp_path_factory.mktemp("page") / "index.html")


@pytest.fixture(scope="module")
def browser():
    program = found()
    if program is None:
        pytest.skip("no Chromium: set CLEARANCE_CHROMIUM, or install one")
    with Chromium(program) as opened:
        yield opened


def unfold(browser):
    browser.run("document.querySelectorAll('details').forEach(part => part.open = true)")


def test_a_table_is_sorted_by_keyboard(browser, page):
    browser.open(page)
    unfold(browser)
    column = f"[...{ROW}.tBodies[0].rows].map(row => Number(row.cells[2].querySelector('data').value))"
    before = browser.run(column)
    browser.run(f"{ROW}.tHead.rows[0].cells[2].querySelector('button').focus()")
    for order in (sorted(before, reverse=True), sorted(before)):
        browser.tell("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
        browser.tell("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter")
        assert browser.run(column) == order
    assert browser.run(f"{ROW}.tHead.rows[0].cells[2].getAttribute('aria-sort')") == "ascending"
    assert not browser.errors


def test_a_filter_leaves_the_rows_that_say_so(browser, page):
    browser.open(page)
    unfold(browser)
    table = "[...document.querySelectorAll('table.sortable')].find(t => t.tHead.textContent.includes('predicted'))"
    browser.run(f"{table}.parentElement.previousElementSibling.querySelector('input').focus()")
    browser.tell("Input.insertText", text="image 1")
    seen = browser.run(f"[...{table}.tBodies[0].rows].filter(r => !r.hidden).map(r => r.textContent)")
    hidden = browser.run(f"[...{table}.tBodies[0].rows].filter(r => r.hidden).map(r => r.textContent)")
    assert seen
    assert hidden
    assert all("image 1" in text for text in seen)
    assert not any("image 1" in text for text in hidden)


def test_one_of_several_curves_is_shown_at_a_time(browser, page):
    browser.open(page)
    unfold(browser)
    shown = "[...document.querySelectorAll('.switch figure')].map(f => f.offsetParent !== null)"
    count = len(browser.run(shown))
    assert count > 1
    assert browser.run(shown) == [True] + [False] * (count - 1)
    browser.run("document.querySelectorAll('.switch input')[1].click()")
    assert browser.run(shown) == [False, True] + [False] * (count - 2)


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_window(browser, page, width):
    browser.open(page, width=width, height=800)
    unfold(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_it_reads_without_javascript(browser, page):
    browser.tell("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.tell("Page.navigate", url=page.resolve().as_uri())
        browser.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        said = browser.run("document.body.textContent")
        assert "Audit of this model" in said
        assert "of 497 test images are classified correctly" in " ".join(said.split())
        assert browser.run("document.querySelectorAll('th button').length") == 0
        assert browser.run("document.querySelectorAll('table.sortable').length") > 0
    finally:
        browser.tell("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_no_violation(browser, page, width, scheme):
    folder = Path(os.environ.get("CLEARANCE_AXE", "node_modules/axe-core"))
    if not (folder / "axe.min.js").is_file():
        pytest.skip("no axe-core: npm install --no-save axe-core, or set CLEARANCE_AXE")
    browser.tell("Page.setBypassCSP", enabled=True)  # for the script of axe alone
    browser.prefer(color_scheme=scheme)
    browser.open(page, width=width)
    unfold(browser)
    browser.tell("Runtime.evaluate", expression=(folder / "axe.min.js").read_text("utf-8"))
    rule = "v => [v.id, v.nodes.map(n => n.html.slice(0, 120))]"
    violations = browser.run(
        f"axe.run(document, {{resultTypes: ['violations']}}).then(r => r.violations.map({rule}))"
    )
    browser.prefer(color_scheme="light")
    assert violations == []
