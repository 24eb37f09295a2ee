"""A trained module cut in front of its head: the same forward pass, stopped where the head would run."""

from typing import Any, NoReturn

from torch import Tensor, nn


class _HeadReached(BaseException):
    """Carries the tap and what arrived there out of a forward pass, as its `args`.

    Not an Exception, so that no ``except Exception`` inside the module swallows it; without a constructor
    of its own, because torch.compile follows only the plain one.
    """


class _Tap(nn.Module):
    """Stands where the head stood and ends the forward pass with what arrives there."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        # Sizes stay readable: a forward pass may well say `x.view(-1, self.fc.in_features)`.
        for name, value in vars(head).items():
            if isinstance(value, int) and not name.startswith("_"):
                setattr(self, name, value)

    def forward(self, features: Tensor, /) -> NoReturn:
        raise _HeadReached(self, features)


class UntilHead(nn.Module):
    """The part of a module that runs before its head, as a module of its own.

    The modules that contain the head are replaced by twins that share their parameters, buffers and hooks;
    everything else is shared as it is. So the given module goes on working, its weights exist once, and
    the head's parameters are not among the extractor's.

    Args:
        module: The module to cut; it is not changed.
        head: One of its submodules.

    Shapes:
        whatever `module` takes -> whatever its head receives.

    Raises:
        RuntimeError: In the forward pass, if that ends without calling the head.

    Misleading: submodules that only run after the head stay registered, and never get a gradient.

    >>> import torch
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extractor = UntilHead(net, net[3])
    >>> extractor(torch.rand(5, 1, 2, 2)).shape
    torch.Size([5, 3])
    >>> [name for name, _ in extractor.named_parameters()]
    ['module.1.weight', 'module.1.bias']
    """

    def __init__(self, module: nn.Module, head: nn.Module) -> None:
        super().__init__()
        tap = _Tap(head)
        self.module = _without_head(module, head, tap, {})
        self.tap = tap
        self.training = tap.training = module.training

    def forward(self, *inputs: Any) -> Tensor:
        """What the head would receive."""
        try:
            self.module(*inputs)
        except _HeadReached as signal:
            tap, features = signal.args
            if tap is not self.tap:  # a cut module inside a cut module: this one is not ours
                raise
            return features
        raise RuntimeError("the forward pass ended without calling the head that was cut off.")


def _without_head(
    module: nn.Module, head: nn.Module, tap: nn.Module, twins: dict[nn.Module, nn.Module]
) -> nn.Module:
    """`tap` for the head, a twin for a module that contains it, any other module itself."""
    if module is head:
        return tap
    if all(part is not head for part in module.modules()):
        return module
    if module not in twins:
        twin = object.__new__(type(module))  # past any __new__: nothing is to be built anew
        # The dicts of parameters, buffers and hooks are the same objects, so `.to()` and training on
        # either side reach both; only the dict of submodules is a new one.
        twin.__dict__.update(module.__dict__)
        twin.__dict__["_modules"] = {
            name: child if child is None else _without_head(child, head, tap, twins)
            for name, child in module._modules.items()
        }
        twins[module] = twin
    return twins[module]
