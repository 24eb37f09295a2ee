"""Models in another precision than images, and logits of any scale: the numbers of the ordinary model."""

import numpy as np
import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits.calibration import confidences, fitted_temperature
from clearance.data import gaussian_images
from clearance.report.numbers import levels
from cli.terminal import run

CODE = """
import torch
from torch import nn

def of(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).to(dtype)

def double(): return of(torch.float64)
def half(): return of(torch.bfloat16)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(CODE)
    for name, seed in (("train", 0), ("test", 1)):
        data = gaussian_images(seed=seed)
        np.savez(tmp_path / f"{name}.npz", images=data.images.numpy(), labels=data.labels.numpy())
    return tmp_path


@pytest.mark.parametrize(("name", "dtype"), [("double", "float64"), ("half", "bfloat16")])
def test_the_command_audits_any_precision_and_says_so(home, name, dtype):
    words = ("--train", "npz:train.npz", "--test", "npz:test.npz", "--audits", "accuracy")
    status, shown, complaint = run("audit", f"net.py:{name}", *words)
    assert status == 0, complaint
    assert f"precision: weights in torch.{dtype}, audited in torch.float32" in shown


def linear(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_in_python_any_precision_is_wrapped_and_audited_in_a_float32_copy(dtype):
    """Numbers are those of the module in float32; its weights are afterwards what they were, to the bit."""
    train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    module = linear(dtype)
    model = cl.wrap(module, example=test.images[:4], verbose=False)
    assert model(test.images).dtype == dtype
    torch.testing.assert_close(model(test.images), module(test.images.to(dtype)))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.warns(UserWarning, match=rf"weights in {dtype} are audited in a float32 copy") as said:
        found = cl.audit(model, train=train, test=test, audits=["accuracy", "minimal_perturbation"])
    assert len(said) == 1
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert model.head.weight is module[1].weight
    whole = cl.wrap(linear(dtype).float(), example=test.images[:4], verbose=False)
    expected = cl.audit(whole, train=train, test=test, audits=["accuracy", "minimal_perturbation"])
    assert [m.value for m in found.measurements] == [m.value for m in expected.measurements]


def test_an_audit_reads_the_model_and_not_what_another_package_put_in_place_of_its_forward():
    """accelerate replaces `forward` on the instance, with mixed precision and a class that cannot be copied."""

    class Prepared:
        def __init__(self, forward):
            self.forward = forward

        def __call__(self, *images, **options):
            return self.forward(*images, **options) * 0

        def __deepcopy__(self, memo):
            raise AssertionError

    train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    model = cl.Classifier(nn.Flatten(), nn.Linear(64, 3))
    expected = cl.audit(model, train=train, test=test, audits=["minimal_perturbation"])
    prepared = Prepared(model.forward)
    model.forward = prepared  # type: ignore[method-assign]
    found = cl.audit(model, train=train, test=test, audits=["minimal_perturbation"])
    assert [m.value for m in found.measurements] == [m.value for m in expected.measurements]
    assert model.forward is prepared


def audited(scale):
    torch.manual_seed(0)
    train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    model = cl.Classifier(nn.Flatten(), nn.Linear(64, 3))
    assert isinstance(model.head, nn.Linear)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(scale)
    card = cl.audit(model, train=train, test=test, audits=["calibration", "accuracy"])
    return {
        (m.name, m.context.get("temperature"), m.context.get("split")): m.value for m in card.measurements
    }


@pytest.mark.parametrize("scale", [1e-18, 1e-9, 1e9, 1e18])
def test_calibration_does_not_depend_on_the_scale_of_logits(scale):
    usual, scaled = audited(1.0), audited(scale)
    for name, value in usual.items():
        if name[1] == "calibrated":
            assert scaled[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    accuracy = 1 - scaled["error", None, "test"]
    mean_confidence = scaled["overconfidence", "as trained", None] + accuracy
    assert mean_confidence == pytest.approx(1 / 3 if scale < 1 else 1.0, abs=1e-6)


def test_right_is_what_the_logits_say_where_probabilities_are_equal():
    confidence, right = confidences(torch.tensor([[0.0, 1e-18], [0.0, 1e-18]]), torch.tensor([1, 0]))
    assert confidence.tolist() == [0.5, 0.5]
    assert right.tolist() == [True, False]


def test_equal_logits_have_the_temperature_1():
    assert fitted_temperature(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])) == 1.0


def test_an_infinite_change_is_no_number_of_grey_levels():
    assert levels(float("inf")).striptags() == "∞"
    assert levels(float("nan")).striptags() == "not a number"
