"""What `cl.audit` shows while it runs."""

import io

import pytest
import torch

import clearance as cl
from clearance.data import gaussian_images
from clearance.experiments.audit_progress import AuditProgress


class Stream(io.StringIO):
    """An error stream, which is a terminal or not."""

    def __init__(self, *, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a small audit writes to the error stream."""

    def run(*, terminal, **options):
        stream = Stream(terminal=terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr("sys.stderr", stream)
        model = cl.Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        train, test = gaussian_images(seed=0), gaussian_images(seed=1)
        cl.audit(model, train=train, test=test, audits=["accuracy"], **options)
        assert capsys.readouterr().out == ""
        return stream.getvalue()

    return run


def test_the_time_left_runs_down_while_nothing_is_said_and_is_left_out_when_it_has_passed():
    times = iter([0.0, 0.0, 70.0, 70.0, 90.0, 101.0])
    progress = AuditProgress(clock=lambda: next(times))
    progress.begin("robustness", 1, 1)
    progress.update(70, 100)
    assert [progress.line() for _ in range(3)] == [
        "robustness (1 of 1): 70 %, 70 s, about 30 s left",
        "robustness (1 of 1): 70 %, 90 s, about 10 s left",
        "robustness (1 of 1): 70 %, 101 s",
    ]


def test_a_terminal_shows_the_audit_in_progress(shown):
    assert "accuracy (1 of 1)" in shown(terminal=True)


@pytest.mark.parametrize(("terminal", "verbose"), [(True, False), (False, True)])
def test_nothing_else_does(shown, terminal, verbose):
    assert shown(terminal=terminal, verbose=verbose) == ""
