"""The contract's own defaults."""

import pytest
import torch

from clearance.objectives import Objective
from clearance.tensors import Outputs


def test_defaults_ask_for_nothing_and_promise_nothing():
    objective = Objective()
    assert tuple(objective.layers) == ()
    assert objective.reads_logits_only is False


def test_what_follows_a_step_is_nothing_by_default():
    objective = Objective()
    objective.after_step(
        Outputs(torch.zeros(1, 2), torch.zeros(1, 3), torch.nn.Identity()), torch.tensor([0])
    )
    assert objective.state_dict() == {}


def test_an_objective_without_forward_says_so():
    outputs = Outputs(torch.zeros(1, 2), torch.zeros(1, 3), torch.nn.Identity())
    with pytest.raises(NotImplementedError):
        Objective()(outputs, torch.tensor([0]))
