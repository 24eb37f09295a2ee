"""Balls, boxes, half-spaces: every projection and every step is certified optimal, or compared with a slow one."""

import math

import pytest
import torch
from scipy.optimize import linprog, minimize

from clearance.attacks.balls import (
    NORMS,
    STEP_SHARE,
    as_norm,
    linear_optimum,
    norm_of,
    projected,
    random_starts,
    room_along,
    steepest,
)
from clearance.attacks.minimum_norm import shortest_step

RADII = (0.0, 0.1, 1.0, 3.0, 50.0)


def world(count=40, pixels=12):
    draws = torch.Generator().manual_seed(0)
    images = torch.rand(count, pixels, dtype=torch.float64, generator=draws)
    images[:8] = images[:8].round()  # every pixel at a bound
    delta = torch.randn(count, pixels, dtype=torch.float64, generator=draws)
    delta[3], delta[4, 2:] = 0.0, 0.0
    return images, delta


@pytest.mark.parametrize("norm", NORMS)
def test_norms_are_torchs_and_survive_any_size(norm):
    _, delta = world()
    expected = torch.linalg.vector_norm(delta, ord=norm, dim=1)
    torch.testing.assert_close(norm_of(delta, norm), expected, rtol=1e-14, atol=0)
    for size in (1e-30, 1e30):
        torch.testing.assert_close(norm_of((size * delta).float(), norm), (size * expected).float())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("epsilon", RADII)
def test_the_linear_optimum_beats_every_other_displacement(norm, epsilon):
    """No feasible point gains more: the vertices and a thousand random points; and it is feasible itself."""
    images, gradient = world()
    best = linear_optimum(gradient, images, epsilon, norm)
    assert (norm_of(best, norm) <= epsilon * (1 + 1e-15)).all()
    assert ((images + best >= 0) & (images + best <= 1)).all()
    gained = (gradient * best).sum(dim=1)
    draws = torch.Generator().manual_seed(1)
    for _ in range(300):
        sparse = torch.rand(images.shape, generator=draws) < torch.rand((), generator=draws)
        other = 2 * gradient * torch.rand(images.shape, dtype=torch.float64, generator=draws) * sparse
        other = torch.maximum(torch.minimum(other, 1 - images), -images)
        length = norm_of(other, norm)
        other = other * torch.where(length > 0, epsilon / length, 1).clamp(max=1).unsqueeze(1)
        assert ((gradient * other).sum(dim=1) <= gained + 1e-12).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("epsilon", RADII)
def test_a_projection_is_certified_nearest(norm, epsilon):
    """p is nearest to d in a convex set if and only if no q in it has <d - p, q> above <d - p, p>."""
    images, delta = world()
    nearest = projected(delta, images, epsilon, norm)
    assert (norm_of(nearest, norm) <= epsilon * (1 + 1e-15)).all()
    assert ((images + nearest >= 0) & (images + nearest <= 1)).all()
    left = delta - nearest
    farthest = linear_optimum(left, images, epsilon, norm)
    gap = (left * (farthest - nearest)).sum(dim=1)
    torch.testing.assert_close(gap, torch.zeros_like(gap), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_inside_stays_to_the_bit_and_float32_stays_inside(norm):
    images, delta = (part.float() for part in world())
    small = 1e-3 * delta
    small = torch.maximum(torch.minimum(small, 1 - images), -images)
    assert torch.equal(projected(small, images, 5.0, norm), small)
    once = projected(delta, images, 0.7, norm)
    assert (norm_of(once.double(), norm) <= 0.7 * (1 + 1e-6)).all()
    torch.testing.assert_close(projected(once, images, 0.7, norm), once)


@pytest.mark.parametrize("norm", NORMS)
def test_every_image_may_have_a_radius_of_its_own(norm):
    images, delta = world()
    radii = torch.linspace(0, 2, len(images), dtype=torch.float64)
    for function in (projected, linear_optimum):
        together = function(delta, images, radii, norm)
        alone = [function(delta[i : i + 1], images[i : i + 1], float(radii[i]), norm) for i in range(40)]
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("norm", NORMS)
def test_a_step_has_length_1_and_no_bit_of_scale(norm):
    _, gradient = world()
    step = steepest(gradient, norm)
    moving = gradient.abs().sum(dim=1) > 0
    length = norm_of(step, norm)
    torch.testing.assert_close(length[moving], torch.ones_like(length[moving]))
    assert (length[~moving] == 0).all()
    single = gradient.float()
    for power in (2.0**-60, 64.0, 2.0**60):
        assert torch.equal(steepest(power * single, norm), steepest(single, norm))
        images = torch.rand(single.shape)
        assert torch.equal(
            linear_optimum(power * single, images, 0.5, norm),
            linear_optimum(single, images, 0.5, norm),
        )


def test_a_step_of_norm_1_moves_one_pixel_in_a_hundred_and_wastes_nothing():
    gradient = torch.arange(1.0, 301.0).unsqueeze(0)
    step = steepest(gradient, 1)
    assert step.nonzero()[:, 1].tolist()[-3:] == [297, 298, 299]
    torch.testing.assert_close(step[0, -3:], torch.full((3,), 1 / (300 * STEP_SHARE)))
    room = torch.ones_like(gradient)
    room[0, -1], room[0, -2] = 0.0, 0.25
    step = steepest(gradient, 1, room)
    torch.testing.assert_close(step[0, -5:], torch.tensor([1 / 12, 1 / 3, 1 / 3, 0.25, 0.0]))
    assert float(step.sum()) == pytest.approx(1)


def test_a_step_of_norm_2_is_longer_where_bounds_take_a_part_of_it():
    gradient, room = torch.tensor([[4.0, 3.0, 1.0]]), torch.tensor([[0.0, 9.0, 9.0]])
    step = steepest(gradient, 2, room)
    torch.testing.assert_close(step, gradient / math.sqrt(10))
    assert torch.equal(steepest(gradient, 2, torch.full((1, 3), 9.0)), gradient / math.sqrt(26))
    # with little room everywhere, every pixel reaches its bound and none goes on for ever
    step = steepest(gradient, 2, torch.full((1, 3), 0.1))
    torch.testing.assert_close(step, torch.tensor([[0.4, 0.3, 0.1]]))
    assert (steepest(gradient, 2, torch.zeros(1, 3)) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_step_that_is_asked_for_longer_at_a_bound_stays_a_number(dtype):
    step = steepest(torch.tensor([[1.0, 1e-6]], dtype=dtype), 2, torch.tensor([[0.5, 0.5]], dtype=dtype))
    assert bool((step.square().sum() < torch.inf).all())


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_no_number_moves_nothing(norm):
    images, gradient = world()
    gradient[0], gradient[1, 0] = math.nan, math.nan
    step, best = steepest(gradient, norm), linear_optimum(gradient, images, 0.5, norm)
    for moved in (step, best):
        assert moved.isfinite().all()
        assert (moved[0] == 0).all()
        assert moved[1, 0] == 0
        assert moved[1].abs().sum() > 0


def test_room_is_the_way_to_the_bound():
    images = torch.tensor([[0.25, 0.25, 1.0, 0.0]])
    room = room_along(torch.tensor([[2.0, -2.0, 1.0, -1.0]]), images)
    assert torch.equal(room, torch.tensor([[0.75, 0.25, 0.0, 0.0]]))


@pytest.mark.parametrize("norm", [3, 0.5, 0, -1, "max", math.nan])
def test_other_norms_are_refused(norm):
    with pytest.raises(ValueError, match="`norm` must be one of inf, 2, 1; got"):
        as_norm(norm)


@pytest.mark.parametrize("norm", NORMS)
def test_starts_are_uniform_in_the_ball(norm):
    """The share of starts within r of the centre is (r / epsilon)^size, in each norm; no direction is preferred."""
    count, size = 3000, 3
    images = 0.5 + 1e-6 * torch.arange(count).double().unsqueeze(1).expand(count, size)
    starts = random_starts(images, 0.1, norm, seed=0, stream=1)
    length = norm_of(starts, norm) / 0.1
    for share in (0.25, 0.5, 0.75):
        within = float((length <= share ** (1 / size)).double().mean())
        assert within == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / count))
    torch.testing.assert_close(
        starts.mean(dim=0), torch.zeros(size).double(), rtol=0, atol=0.1 * 4 / math.sqrt(count)
    )
    variances = starts.var(dim=0)
    torch.testing.assert_close(variances, variances.mean().expand(size), rtol=0.15, atol=0)


def test_starts_follow_from_seed_stream_and_pixels_alone():
    images = torch.rand(6, 1, 4, 4)

    def starts(images, seed=0, stream=1):
        return random_starts(images, 0.5, 2, seed=seed, stream=stream)

    first = starts(images)
    assert torch.equal(starts(images[[4, 1]]), first[[4, 1]])
    assert torch.equal(starts(images.double()).float(), first)
    assert not torch.equal(starts(images, seed=1), first)
    assert not torch.equal(starts(images, stream=2), first)
    assert len({tuple(row.flatten().tolist()) for row in first}) == 6
    assert torch.equal(starts(torch.zeros(1, 4)), starts(-torch.zeros(1, 4)))


# The shortest step across a hyperplane inside the box, against slow oracles.


STEP_NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)


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


@pytest.mark.parametrize("norm", STEP_NORMS)
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


@pytest.mark.parametrize("norm", STEP_NORMS)
def test_p01_away_from_the_bounds_the_length_is_rise_over_the_dual_norm(norm):
    _, gradient, rise = problems()
    rise = 0.05 * rise  # no pixel moves by more than half
    dual = math.inf if norm == 1 else 1.0 if math.isinf(norm) else norm / (norm - 1)
    middle = torch.full_like(gradient, 0.5)
    step = shortest_step(middle, gradient, rise, norm)
    expected = rise / torch.linalg.vector_norm(gradient, ord=dual, dim=1)
    torch.testing.assert_close(
        torch.linalg.vector_norm(step, ord=norm, dim=1), expected, rtol=1e-10, atol=0.0
    )


@pytest.mark.parametrize("norm", STEP_NORMS)
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


@pytest.mark.parametrize("norm", STEP_NORMS)
def test_the_scale_of_the_function_does_not_matter(norm):
    points, gradient, rise = (part.float() for part in problems())
    here = shortest_step(points, gradient, rise, norm)
    for scale in (64.0, 2.0**-30):
        assert torch.equal(shortest_step(points, gradient * scale, rise * scale, norm), here)
