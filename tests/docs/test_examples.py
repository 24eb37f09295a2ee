"""The examples run, in small settings, and do what they say."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """An example as a module; its main() has not run."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_every_example_is_tested_here():
    text = Path(__file__).read_text("utf-8")
    names = [path.stem for path in EXAMPLES.glob("*.py")]
    assert names
    assert all(f'example("{name}")' in text for name in names)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_begin_with_what_they_do_and_use_public_names_only(path):
    tree = ast.parse(path.read_text("utf-8"))
    assert f"python examples/{path.name}" in (ast.get_docstring(tree) or "")
    imported = [
        n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and "clearance" in n.module
    ]
    assert not imported
    private = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr.startswith("_")]
    assert set(private) <= {"__init__"}


def test_audit_your_model(example, quick_heads, tmp_path, capsys):
    card = example("audit_your_model").main(epochs=5, out=tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text("utf-8") == card.to_html()
    assert {m.audit for m in card.measurements} >= {"accuracy", "performance", "calibration"}
    (own,) = [m for m in card.measurements if m.audit == "accuracy" and m.context["split"] == "test"]
    assert own.value < 0.3
    shown = capsys.readouterr().out
    assert "head '9' (Linear 64 -> 10), 64 features" in shown
    assert "Audit of my network on digits: " in shown


def test_compare_your_loss(example, quick_heads, tmp_path, capsys):
    card = example("compare_your_loss").main(epochs=1, seeds=2, out=tmp_path / "compare.html")
    assert card.report.methods == ("plain", "focal")
    assert {(r.method, r.seed) for r in card.records} == {(m, s) for m in ("plain", "focal") for s in (0, 1)}
    assert (tmp_path / "compare.html").exists()
    assert "training focal, seed 1" in capsys.readouterr().out


def test_foca_in_your_loop(example, capsys):
    network = example("foca_in_your_loop").main(epochs=2)
    shown = capsys.readouterr().out
    assert "head 'head' (Sequential), 512 features" in shown
    assert "epoch 2: loss under the last weak heads" in shown
    # the module that went in has learnt, head and all: it was never handed back
    test = example("foca_in_your_loop").cl.load_dataset("digits", split="test")
    error = example("foca_in_your_loop").error(network, test)
    assert f"test error of your module: {100 * error:.1f} %" in shown
    assert error < 0.2


def test_foca_fine_tuning(example, capsys):
    found = example("foca_fine_tuning").main(epochs=3, tuning_epochs=2)
    assert found["before"].keys() == found["after"].keys()
    assert found["after"]["own head"] < 0.1
    for head in ("retrained", "linear", "class mean"):
        assert found["after"][head] < found["before"][head]
    assert found["after"]["nearest pixel"] == found["before"]["nearest pixel"]
    shown = capsys.readouterr().out
    assert "head 'classifier' (Sequential), 256 features" in shown
    assert f"{100 * found['after']['linear']:.1f}" in shown


@pytest.mark.filterwarnings("ignore")  # of other packages, and of trials with a bad learning rate
def test_optuna_search(example, capsys):
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install optuna")
    study = example("optuna_search").main(trials=6, epochs=3)
    pruned = [one for one in study.trials if one.state.name == "PRUNED"]
    assert 0 < len(pruned) < 6
    assert all(len(one.intermediate_values) < 3 for one in pruned)
    assert study.best_value < 0.3
    assert f"6 trials, {len(pruned)} pruned; best: " in capsys.readouterr().out


def test_large_margin_loop(example, capsys):
    found = example("large_margin_loop").main(epochs=3)
    assert list(found) == ["cross-entropy", "large margin"]
    assert all(error < 0.3 and 0.1 < distance < 2.0 for error, distance in found.values())
    assert found["cross-entropy"] != found["large margin"]
    error, distance = found["large margin"]
    shown = f"large margin   wrong on {100 * error:.1f} % of test images, median distance {distance:.2f}"
    assert shown in capsys.readouterr().out


def test_the_focal_loss_of_the_example_is_the_papers(example):
    loss = example("compare_your_loss").FocalLoss
    logits, labels = torch.randn(2, 5, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    outputs = example("compare_your_loss").cl.Outputs(logits[0], logits[0], torch.nn.Identity())
    expected = F.cross_entropy(logits[0], labels)
    torch.testing.assert_close(loss(gamma=0.0)(outputs, labels).total, expected)
    p = logits[0].softmax(dim=1)[torch.arange(5), labels]
    slow = sum(-((1 - float(q)) ** 2) * float(q.log()) for q in p) / 5
    assert float(loss()(outputs, labels).total) == pytest.approx(slow)
    both = example("compare_your_loss").cl.Outputs(logits[0], logits, torch.nn.Identity())
    each = [loss()(outputs.with_head(lambda _, k=k: logits[k]), labels).total for k in (0, 1)]
    torch.testing.assert_close(loss()(both, labels).total, torch.stack(each).mean())
