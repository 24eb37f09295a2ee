"""Trackers of experiments themselves: every name and value of a card arrives."""

import pytest

import clearance as cl
from clearance.data import gaussian_images

pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages


@pytest.fixture(scope="module")
def card():
    import torch

    train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    model = cl.Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    return cl.audit(model, train=train, test=test, audits=["accuracy", "robustness", "calibration"])


@pytest.mark.parametrize("given", ["module", "run"])
def test_mlflow(card, tmp_path, given, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("audits")
    run = mlflow.start_run()
    if given == "run":
        mlflow.end_run()
        card.log_to(run, step=3)
    else:
        card.log_to(mlflow, step=3)
        mlflow.end_run()
    found = mlflow.get_run(run.info.run_id)
    assert found.data.metrics == pytest.approx(card.flat())
    assert len(card.flat()) > 10
    assert len(list(tmp_path.glob("**/clearance/step-3.html"))) == 1


def test_weights_and_biases(card, tmp_path, monkeypatch):
    """Offline; the run is already at a later step, as a trainer's own logging leaves it."""
    wandb = pytest.importorskip("wandb", reason="Weights & Biases is not installed: pip install wandb")
    monkeypatch.undo()  # wandb's own process listens on a socket of this machine
    with wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True)) as run:
        run.log({"loss": 1.0}, step=100)
        card.log_to(run, step=3)
        found = dict(run.summary)
    assert {name: found[name] for name in card.flat()} == pytest.approx(card.flat(), nan_ok=True)
    assert found["clearance_step"] == 3
    assert found["clearance"]["_type"] == "html-file"


def test_tensorboard(card, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        card.log_to(writer, step=3)
    events = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    events.Reload()
    found = {name: events.Scalars(name)[0] for name in events.Tags()["scalars"]}
    assert {name: event.value for name, event in found.items()} == pytest.approx(
        card.flat(), rel=1e-5, nan_ok=True
    )
    assert {event.step for event in found.values()} == {3}


def test_anything_else_is_refused_in_words(card):
    with pytest.raises(
        TypeError, match=r"`run` must be mlflow or a run of it, .*; got dict\. .* send card\.flat"
    ):
        card.log_to({})
