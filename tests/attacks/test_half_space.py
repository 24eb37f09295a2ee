"""The shortest step across a hyperplane inside the box, against slow oracles."""

import math

import pytest
import torch
from scipy.optimize import linprog, minimize

from clearance.attacks.minimum_norm import shortest_step
from clearance.vocabulary import Bounds

NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)


def problems(count=12, pixels=7, seed=0):
    draws = torch.Generator().manual_seed(seed)
    points = torch.rand(count, pixels, generator=draws, dtype=torch.float64)
    points[0, :3] = torch.tensor([0.0, 1.0, 0.0])  # pixels without room on one side
    gradient = torch.randn(count, pixels, generator=draws, dtype=torch.float64)
    gradient[1, 2] = 0.0
    room = torch.where(gradient > 0, 1 - points, points)
    most = (gradient.abs() * room).sum(1)
    return points, gradient, most * torch.linspace(0.05, 0.95, count, dtype=torch.float64)


def reference(point, gradient, rise, norm):
    """The same problem for scipy; linear programmes for p = 1 and inf, SLSQP otherwise."""
    d = len(point)
    low, high = -point, 1 - point
    if norm == 2 or 1 < norm < math.inf:
        found = minimize(
            lambda step: (abs(step) ** norm).sum(),
            x0=(gradient > 0) * high + (gradient <= 0) * low,
            bounds=list(zip(low, high, strict=True)),
            constraints={"type": "ineq", "fun": lambda step: gradient @ step - rise},
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-14},
        )
        return found.fun ** (1 / norm)
    # variables: the step, then bounds of its absolute values (one for all if p = inf)
    extra = d if norm == 1 else 1
    spread = torch.eye(d).numpy() if norm == 1 else torch.ones(d, 1).numpy()
    eye = torch.eye(d).numpy()
    rows = [[*(-gradient), *[0.0] * extra]]
    rows += [[*eye[i], *(-spread[i])] for i in range(d)] + [[*(-eye[i]), *(-spread[i])] for i in range(d)]
    found = linprog(
        [0.0] * d + [1.0] * extra,
        A_ub=rows,
        b_ub=[-rise] + [0.0] * (2 * d),
        bounds=[*zip(low, high, strict=True), *[(0, None)] * extra],
    )
    return found.fun


@pytest.mark.parametrize("norm", NORMS)
def test_no_shorter_step_reaches_the_rise(norm):
    points, gradient, rise = problems()
    steps = shortest_step(points, gradient, rise, norm)
    torch.testing.assert_close((steps * gradient).sum(1), rise, rtol=1e-10, atol=1e-12)
    assert ((points + steps) >= -1e-12).all()
    assert ((points + steps) <= 1 + 1e-12).all()
    lengths = torch.linalg.vector_norm(steps, ord=norm, dim=1)
    for row in range(len(points)):
        best = reference(points[row].numpy(), gradient[row].numpy(), float(rise[row]), norm)
        assert float(lengths[row]) == pytest.approx(best, rel=2e-5), row


@pytest.mark.parametrize("norm", NORMS)
def test_p01_away_from_the_bounds_the_length_is_rise_over_the_dual_norm(norm):
    _, gradient, rise = problems()
    dual = math.inf if norm == 1 else 1.0 if math.isinf(norm) else norm / (norm - 1)
    middle = torch.full_like(gradient, 0.5)
    step = shortest_step(middle, gradient, rise, norm, Bounds(-100.0, 100.0))
    expected = rise / torch.linalg.vector_norm(gradient, ord=dual, dim=1)
    torch.testing.assert_close(
        torch.linalg.vector_norm(step, ord=norm, dim=1), expected, rtol=1e-10, atol=0.0
    )


@pytest.mark.parametrize("norm", NORMS)
def test_what_cannot_be_reached_goes_to_the_bounds_and_nothing_is_done_for_nothing(norm):
    points, gradient, _ = problems()
    far = shortest_step(points, gradient, torch.full((12,), 1e6, dtype=torch.float64), norm)
    pushed = torch.where(gradient > 0, 1.0, torch.where(gradient < 0, 0.0, points))
    torch.testing.assert_close(points + far, pushed, rtol=0, atol=1e-12)
    for rise in (0.0, -1.0):
        none = shortest_step(points, gradient, torch.full((12,), rise, dtype=torch.float64), norm)
        assert torch.equal(none, torch.zeros_like(points))
    flat = shortest_step(points, torch.zeros_like(points), torch.ones(12, dtype=torch.float64), norm)
    assert torch.equal(flat, torch.zeros_like(points))


@pytest.mark.parametrize("norm", NORMS)
def test_the_scale_of_the_function_does_not_matter(norm):
    points, gradient, rise = (part.float() for part in problems())
    here = shortest_step(points, gradient, rise, norm)
    for scale in (64.0, 2.0**-30):
        assert torch.equal(shortest_step(points, gradient * scale, rise * scale, norm), here)
