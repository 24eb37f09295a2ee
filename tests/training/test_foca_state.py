"""FOCA's state, taken anywhere in a cycle of reuse, gives the same next steps."""

import pytest
import torch

from clearance.data import Augmentation
from clearance.runs import flatten, unflatten
from clearance.training import FOCA


@pytest.mark.parametrize("stop", [1, 4, 6])  # at the end of a cycle, within one, before its last step
def test_a_state_taken_anywhere_in_a_cycle_gives_the_same_next_steps(data, make_model, weights, same, stop):
    way = FOCA(per_class=2, heads=2, reuse=4)
    augmented = data.augmented(Augmentation(pad=1))

    def started():
        model = make_model()
        optimizer = torch.optim.SGD(way.trainable(model), lr=0.1, momentum=0.9)
        streams = way.generators(0)
        return model, optimizer, streams, way.start(model, augmented, optimizer, streams)

    def go(training, first, last):
        return [training.step(*data.batch(torch.arange(s, s + 9))).total.detach() for s in range(first, last)]

    model, optimizer, streams, training = started()
    go(training, 0, stop)
    tree, tensors = flatten(
        [
            dict(model.state_dict()),
            optimizer.state_dict(),
            training.state_dict(),
            {name: stream.get_state() for name, stream in streams.items()},
        ]
    )
    losses = go(training, stop, 11)
    other, other_optimizer, other_streams, again = started()
    state = unflatten(tree, tensors)
    other.load_state_dict(state[0])
    other_optimizer.load_state_dict(state[1])
    again.load_state_dict(state[2])
    for name, stream in other_streams.items():
        stream.set_state(state[3][name])
    assert torch.equal(torch.stack(losses), torch.stack(go(again, stop, 11)))
    assert same(weights(model), weights(other))
    assert (again.steps, again.drawn_heads) == (training.steps, training.drawn_heads) == (11, 6)
