"""The backward pass of a step: to the parameters that it may move, and no farther."""

from collections.abc import Iterable

from torch import Tensor, nn

from clearance.objectives._objective import Objective


def backward_to(parameters: Iterable[nn.Parameter], loss: Tensor, objective: Objective) -> None:
    """Accumulate the gradient of `loss` in the parameters.

    An objective that reads the activation ``"input"`` makes the images a leaf of the graph, and a plain
    ``loss.backward()`` would take the gradient at them, too: one layer's work, for a number that nobody reads.
    The gradients of parameters are the same to the bit.

    Args:
        parameters: Those that a step may move; frozen ones and ones without part in the loss stay as they are.
        loss: 0-dim.
        objective: Read for `layers`. Where the images are no leaf the pass is the plain one, which reentrant
            checkpointing needs.
    """
    if "input" not in objective.layers:
        loss.backward()
        return
    loss.backward(inputs=[parameter for parameter in parameters if parameter.requires_grad])
