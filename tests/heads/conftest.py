"""The slow truth about heads: ordinary modules, one after another, under torch.optim.SGD in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.heads import HeadStack


def step_rows(count, training, generator):
    """The samples of each step: whole epochs in a drawn order, the last batch of an epoch smaller."""
    size = training.batch_size
    rows: list[torch.Tensor] = []
    while len(rows) < training.steps:
        order = torch.arange(count) if size is None else torch.randperm(count, generator=generator)
        rows.extend(order[start : start + (size or count)] for start in range(0, count, size or count))
    return rows[: training.steps]


def train_alone(head, features, labels, training, *, rows, loss=None):
    """One module, one optimiser, one step at a time."""
    loss = loss or (lambda logits, labels: F.cross_entropy(logits, labels, reduction="none"))
    optimizer = torch.optim.SGD(
        head.parameters(),
        lr=training.lr,
        momentum=training.momentum,
        nesterov=training.nesterov and training.momentum > 0,
        weight_decay=training.weight_decay,
    )
    for chosen in rows:
        optimizer.zero_grad(set_to_none=False)
        total = loss(head(features[chosen]), labels[chosen]).mean()
        total.backward()
        optimizer.step()
    return head


@pytest.fixture
def loop_of_modules():
    """Train each head of a stack alone; stacked parameters by name."""

    def trained(stack, features, labels, training, *, loss=None, generator=None):
        rows = step_rows(features.shape[-2], training, generator)
        heads = []
        for k in range(len(stack)):
            head = copy.deepcopy(stack.architecture).requires_grad_(requires_grad=True)
            with torch.no_grad():
                for name, value in head.named_parameters():
                    value.copy_(stack.parameters[name][k])
            heads.append(
                train_alone(
                    head,
                    features[k] if features.ndim == 3 else features,
                    labels[k] if labels.ndim == 2 else labels,
                    training,
                    rows=rows,
                    loss=loss,
                )
            )
        named = [dict(head.named_parameters()) for head in heads]
        return {name: torch.stack([each[name].detach() for each in named]) for name in named[0]}

    return trained


class Residual(nn.Sequential):
    """A Sequential whose forward is not that of Sequential."""

    def forward(self, features):
        return features + super().forward(features)


class Halved(nn.Linear):
    """A Linear whose forward is not that of Linear."""

    def forward(self, features):
        return 0.5 * super().forward(features)


def tied(width):
    """Two layers that hold one tensor; as wide as they are deep, so that everything would fit."""
    head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    head[2].weight = head[0].weight
    return head


def relu_at_the_end(width, classes):
    """One ReLU module that is run twice, the second time on the logits."""
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(width, 5), relu, nn.Linear(5, classes), relu)


LINEAR_RELU = {
    "linear": lambda D, C: nn.Linear(D, C),
    "linear without bias": lambda D, C: nn.Linear(D, C, bias=False),
    "two layers": lambda D, C: nn.Sequential(nn.Linear(D, 7), nn.ReLU(), nn.Linear(7, C)),
    "four layers, some biases": lambda D, C: nn.Sequential(
        nn.Linear(D, 7, bias=False),
        nn.ReLU(),
        nn.Linear(7, 6),
        nn.Identity(),
        nn.ReLU(),
        nn.Linear(6, 5, bias=False),
        nn.ReLU(),
        nn.Linear(5, C),
    ),
}
OTHER = {
    "layer norm": lambda D, C: nn.Sequential(nn.LayerNorm(D), nn.Linear(D, C)),
    "tanh": lambda D, C: nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, C)),
    "residual": lambda D, C: nn.Sequential(Residual(nn.Linear(D, D), nn.Tanh()), nn.Linear(D, C)),
    "residual alone": lambda D, C: Residual(nn.Linear(D, 6), nn.ReLU(), nn.Linear(6, D)),
    "halved": lambda D, C: Halved(D, C),
    "tied": lambda D, C: tied(D),
    "relu at the end": relu_at_the_end,
}


@pytest.fixture(params=list(LINEAR_RELU))
def linear_relu(request):
    """A way to make a head that is Linear (ReLU Linear)*, in float64."""
    return lambda D, C: LINEAR_RELU[request.param](D, C).double()


@pytest.fixture(params=list(OTHER))
def other_head(request):
    """A way to make a head that is something else, in float64."""
    return lambda D, C: OTHER[request.param](D, C).double()


@pytest.fixture(params=[*LINEAR_RELU, *OTHER])
def any_head(request):
    """A way to make any head, in float64."""
    return lambda D, C: {**LINEAR_RELU, **OTHER}[request.param](D, C).double()


@pytest.fixture
def fresh():
    """K heads with weights and biases that are all different, float64."""

    def stack(architecture, count=3, seed=0, std=0.4):
        draws = torch.Generator().manual_seed(seed)
        parameters = {
            name: std * torch.randn(count, *value.shape, generator=draws, dtype=torch.float64)
            for name, value in architecture.named_parameters()
        }
        return HeadStack(architecture, parameters)

    return stack


@pytest.fixture
def cloud():
    """Features (K, n, D) or, without K, (n, D), float64, and labels that follow them loosely."""

    def drawn(K, n, D, C=3, seed=1):
        draws = torch.Generator().manual_seed(seed)
        shape = (n,) if K is None else (K, n)
        labels = torch.randint(C, shape, generator=draws)
        features = torch.randn(*shape, D, generator=draws, dtype=torch.float64)
        return features + torch.eye(C, D, dtype=torch.float64)[labels], labels

    return drawn


@pytest.fixture
def assert_same_heads():
    """Two sets of stacked parameters agree to a tolerance relative to their size."""

    def compare(found, expected, tolerance=1e-10):
        assert set(found) == set(expected)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance, msg=lambda m: m)

    return compare
