"""Torch's wrapper for several processes, without its threads, which now and then never end in a process alone."""

from torch import nn


class Parallel(nn.parallel.DistributedDataParallel):
    """The module itself, in a DistributedDataParallel."""

    def __init__(self, module, static_graph=False):
        nn.Module.__init__(self)
        self.module, self.static_graph = module, static_graph

    def forward(self, *given, **named):
        return self.module(*given, **named)
