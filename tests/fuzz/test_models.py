"""Modules that no one would write, cut at a head: the classifier answers as the module does, or one line says why."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import clearance as cl
from fuzz.endings import MARK, cases, one_line

pytestmark = MARK


class Odd(nn.Module):
    """A module made of a body, a last layer, and something odd between and after them."""

    def __init__(self, body, head, between, after, result):
        super().__init__()
        self.body, self.head, self.between, self.after, self.result = body, head, between, after, result

    def forward(self, x):
        features = BETWEEN[self.between](self.body(x))
        return RESULTS[self.result](AFTER[self.after](self.head(features)), features)


def fails(x):
    raise RuntimeError("it fails\non two lines")


BETWEEN = {
    "nothing": lambda x: x,
    "maps": lambda x: x[:, :, None, None],
    "a sum": lambda x: x + x.mean(),
    "half": lambda x: x.half().float(),
    "no gradient": lambda x: x.detach(),
    "noise": lambda x: x + torch.rand_like(x),
    "zero": lambda x: 0 * x,
    "not a number": lambda x: x / 0,
    "one less": lambda x: x[:-1],
    "failure": fails,
}
AFTER = {
    "nothing": lambda x: x,
    "softmax": lambda x: x.softmax(dim=1),
    "scaled": lambda x: 3 * x,
    "tiny": lambda x: 1e-18 * x,
    "first": lambda x: x[:, :1],
    "sorted": lambda x: x.sort(dim=1).values,
    "whole": lambda x: x.long(),
    "flat": lambda x: x.flatten(),
    "infinite": lambda x: x * torch.inf,
}
RESULTS = {
    "logits": lambda x, f: x,
    "a pair": lambda x, f: (x, f),
    "a mapping": lambda x, f: {"logits": x, "features": f},
    "none": lambda x, f: None,
    "a list": lambda x, f: [x],
    "numbers": lambda x, f: x.tolist(),
}
ACTIVATIONS = (nn.ReLU(), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Tanh(), nn.Identity())
HEADS = ("head", "body", "body.1", "after", "", "nowhere", "head.0")


@cases(200)
@given(
    activation=st.sampled_from(ACTIVATIONS),
    between=st.sampled_from((*BETWEEN, *["nothing"] * 8)),
    after=st.sampled_from((*AFTER, *["nothing"] * 8)),
    result=st.sampled_from((*RESULTS, *["logits"] * 6)),
    head=st.one_of(st.none(), st.sampled_from(HEADS)),
    classes=st.integers(1, 4),
    dtype=st.sampled_from((torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16)),
    mean=st.sampled_from((0.0, 0.5, (0.1, 0.2, 0.3), float("nan"), 255.0, ())),
    std=st.sampled_from((1.0, 0.5, 0.0, -1.0, float("inf"), (0.2,))),
)
def test_wrapped_modules(activation, between, after, result, head, classes, dtype, mean, std):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), activation)
    module = Odd(body, nn.Linear(5, classes), between, after, result).to(dtype).eval()
    images = torch.rand(4, 3, 2, 2)
    with one_line("`module`", "`example`", "head", "`mean`", "`std`", "`model`"):
        model = cl.wrap(module, example=images, head=head, mean=mean, std=std)
        normal = (images - torch.tensor(mean).reshape(-1, 1, 1)) / torch.tensor(std).reshape(-1, 1, 1)
        with torch.no_grad():
            answer, found = module(normal.to(dtype)), model(images)
            given = (
                answer.values()
                if isinstance(answer, dict)
                else [answer]
                if torch.is_tensor(answer)
                else answer
            )
            # of several, the one that the named head makes; one logit is that of the second of two classes
            two = [F.pad(one.reshape(-1, 1), (1, 0)) if one[0].numel() == 1 else one for one in given]
            assert any(one.shape == found.shape and torch.allclose(found, one, atol=1e-5) for one in two)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_usual_module_is_wrapped(classes):
    """Not every case above is refused."""
    module = Odd(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), nn.Linear(5, classes), "nothing", "nothing", "logits"
    ).eval()
    assert cl.wrap(module, example=torch.rand(4, 3, 2, 2))(torch.rand(2, 3, 2, 2)).shape == (2, classes)
