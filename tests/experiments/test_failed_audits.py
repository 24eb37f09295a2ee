"""Audits that raise are entries of the page, and the others stay; models that raise are one error."""

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import Accuracy, Audit, ClassScatter, Findings
from clearance.data import gaussian_images
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import RunData
from clearance.experiments.method import Method
from clearance.experiments.provenance import report_of
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan, run_method
from clearance.models import Classifier
from clearance.report import Card
from clearance.report.left_out import has_failed, left_out_lines

TRAIN, TEST = gaussian_images(per_class=12, seed=0), gaussian_images(per_class=12, seed=1)


class Breaks(Audit):
    """An audit that raises while `broken`."""

    name = "breaks"
    broken = True

    def examine(self, subject):
        if Breaks.broken:
            raise RuntimeError("no such layer in /home/ann/nets/deep.py\nand more")
        return Findings(Accuracy().examine(subject).measurements[:0])


@pytest.fixture(autouse=True)
def _broken():
    Breaks.broken = True


def linear(**given) -> Classifier:
    torch.manual_seed(0)
    return Classifier(nn.Flatten(), nn.Linear(64, 3), **given)


def test_a_failed_audit_is_an_entry_and_the_others_stay():
    card = cl.audit(linear(), train=TRAIN, test=TEST, audits=["accuracy", Breaks(), "class_scatter"])
    assert {m.audit for m in card.measurements} == {"accuracy", "class_scatter"}
    assert has_failed(card.report.recipe)
    failed, again = left_out_lines(card.report.recipe)
    assert failed.startswith("Failed, so nothing is known of it: breaks (breaks).")
    assert "RuntimeError: no such layer in deep.py (test_failed_audits.py, line" in failed
    assert "/home" not in failed
    assert again.startswith("To measure this:")
    assert "no such layer" in card.to_html()


def test_where_no_audit_works_its_error_is_raised():
    with pytest.raises(
        ValueError, match=r"no audit has a result; breaks failed with RuntimeError: no such layer"
    ):
        cl.audit(linear(), train=TRAIN, test=TEST, audits=[Breaks()])


@pytest.mark.filterwarnings("ignore")
def test_a_failed_audit_of_a_run_is_kept_in_the_report_and_tried_again(tmp_path, caplog):
    recipe = Recipe(epochs=1, batch_size=12, seeds=1, audits=(), methods={"plain": Method(hidden=(4,))})
    audits = AuditPlan.of([Accuracy(), Breaks(), ClassScatter()])
    plan, data = RunPlan(recipe, "plain", 0, audits=audits), RunData(TRAIN, TEST)
    found = run_method(plan, data, tmp_path)
    assert "audit breaks failed: RuntimeError" in caplog.text
    assert [(left.audit, left.why) for left in found.left_out] == [("breaks", "failed")]
    assert {"accuracy", "class_scatter"} <= {record.measurement.audit for record in found.records}
    card = Card(report_of(recipe, [found], "clearance compare", audits))
    (failed, again) = left_out_lines(card.report.recipe)
    assert "breaks (breaks), plain, seed 0. RuntimeError" in failed
    assert again == "To measure this: clearance compare"
    weights = (tmp_path / plan.folder / "model.safetensors").stat().st_mtime_ns
    Breaks.broken = False
    assert run_method(plan, data, tmp_path).left_out == ()
    assert (tmp_path / plan.folder / "model.safetensors").stat().st_mtime_ns == weights  # not trained again


class RaisesOn(nn.Module):
    """Raises for images whose first pixel is `value`."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, images):
        if (images[:, 0, 0, 0] == self.value).any():
            raise RuntimeError("cannot look at this\nat all")
        return images.flatten(1)


def test_a_model_that_raises_on_one_image_is_one_error_that_names_it():
    model = Classifier(RaisesOn(float(TEST.images[7, 0, 0, 0])), nn.Linear(64, 3), mean=0.0, std=1.0)
    message = (
        r"on image 7 of 'gaussian' \(counted from 0\) it raised RuntimeError: cannot look at this "
        r"\(test_failed_audits.py, line \d+\)\. Correct the model"
    )
    with pytest.raises(ValueError, match=message):
        cl.audit(model, train=TRAIN, test=TEST, audits=["accuracy", "class_scatter"])


class NoEval(nn.Flatten):
    def train(self, mode=True):
        if not mode:
            raise RuntimeError("this layer only trains")
        return super().train(mode)


def test_a_model_without_an_evaluation_mode_is_one_error():
    model = Classifier(nn.Flatten(), nn.Linear(64, 3))
    model.extractor = NoEval()
    with pytest.raises(ValueError, match=r"eval\(\) raised RuntimeError: this layer only trains"):
        cl.audit(model, train=TRAIN, test=TEST, audits=["accuracy"])


def test_weights_without_numbers_are_one_error():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3)).to("meta")
    with pytest.raises(ValueError, match=r"got '1.weight' on the meta device. Load them"):
        cl.wrap(module, example=TEST.images[:2])
    with pytest.raises(ValueError, match=r"on the meta device. Load them"):
        cl.audit(linear().to("meta"), train=TRAIN, test=TEST, audits=["accuracy"])


@pytest.mark.filterwarnings("ignore")
def test_an_exported_program_is_one_error():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    exported = torch.export.export(module, (TEST.images[:2],)).module()
    with pytest.raises(
        ValueError, match=r"eval\(\) raised NotImplementedError.*give the module that was exported"
    ):
        cl.wrap(exported, example=TEST.images[:2])
