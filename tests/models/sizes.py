"""Parameters and work of a network, counted."""

import torch
from torch import nn


def parameters(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def multiply_adds(module, shape):
    """Of every convolution and linear layer, counted while one image runs."""
    counted = []

    def count(layer, inputs, output):
        if isinstance(layer, nn.Conv2d):
            counted.append(layer.weight[0].numel() * output.numel())
        elif isinstance(layer, nn.Linear):
            counted.append(layer.weight.numel() * len(output))

    for layer in module.modules():
        layer.register_forward_hook(count)
    module.eval()(torch.zeros(1, *shape))
    return sum(counted)
