"""The article's claims about its support vector machines, judged: machines have no seeds, only tolerances."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.experiments.papers import paper_claims
from clearance.experiments.reproductions.tanay_2018.svm_truth import STRONG, TOLERANCES
from clearance.records.claims import Claim, Judgement, Outcome, Reading, Verdict, judge

PAPER, STUDY = "tanay-2018", "svm"
ROUNDING = {"err_train_pct": 5e-3, "err_test_pct": 5e-3, "best_test_pct": 5e-4}  # of percentages as printed
NOT_SEPARABLE = ("3-5", "3-8", "4-9", "5-8", "7-9")
FLAT = 1e-6  # radians, and units of distance, that a step may go the other way in any case
Found = Mapping[str, Mapping[str, Any]]


def svm_judgements(pairs: Found, dataset: str) -> tuple[Judgement, ...]:
    """Every claim of the article: those about these machines judged, every other one "not run".

    Args:
        pairs: What `svm_models.solved_pair` found, by the pair's name, for example ``"2-3"``.
        dataset: What the machines separate.
    """
    claims = paper_claims(PAPER)
    rest = judge(claims, [], dataset)
    return tuple(
        _judged(claim, pairs) if _about(claim, dataset) else other
        for claim, other in zip(claims.claims, rest, strict=True)
    )


def _about(claim: Claim, dataset: str) -> bool:
    numbers = any(reading.value is not None for reading in claim.readings)
    known = claim.datasets if numbers else (*claim.datasets, *claim.also)
    return claim.study == STUDY and dataset in known


def _judged(claim: Claim, pairs: Found) -> Judgement:
    if claim.readings:
        return _landmarks(claim, pairs)
    verdict, told = RULES[claim.id](pairs)
    return Judgement(claim, verdict, told)


def _landmarks(claim: Claim, pairs: Found) -> Judgement:
    """Every number of one pair within the article's rounding and the tolerance of its solver."""
    name = str(claim.readings[0].context["pair"])
    if name not in pairs:
        return Judgement(claim, "not run", f"pair {name} was not solved")
    outcomes, worst = [], []
    for reading in claim.readings:
        found, allowed = landmark(reading, pairs[name]), tolerance(reading, pairs[name])
        assert reading.value is not None
        good = abs(found - reading.value) <= allowed
        told = f"{reading.measure} {found:.4g}, the article {reading.value:g}"
        outcomes.append(
            Outcome(reading, "holds" if good else "refuted", told, "holds" if good else "refuted")
        )
        worst += [] if good else [told]
    if worst:
        return Judgement(claim, "refuted", "; ".join(worst), "", tuple(outcomes))
    return Judgement(claim, "holds", f"all {len(outcomes)} numbers", "", tuple(outcomes))


def landmark(reading: Reading, pair: Mapping[str, Any]) -> float:
    """The number that a reading is about."""
    models, split = pair["models"], "train" if reading.measure == "err_train_pct" else "test"
    if reading.measure == "best_test_pct":
        return 100 * min(models["n_err_test"]) / pair["n_test"]
    column = _column(reading)
    if reading.measure.endswith("_pct"):
        return 100 * float(models[f"n_err_{split}"][column]) / float(pair[f"n_{split}"])
    return float(models[reading.measure][column])


def tolerance(reading: Reading, pair: Mapping[str, Any]) -> float:
    """How far a number may be from the article's, which is rounded and whose solver stopped early."""
    weak = "log10_lambda" not in reading.context or _column(reading) > STRONG
    if reading.measure.endswith("_pct"):
        split = "train" if reading.measure == "err_train_pct" else "test"
        images = TOLERANCES[f"n_err_{split}"][weak]
        return 100 * images / float(pair[f"n_{split}"]) + ROUNDING[reading.measure]
    return TOLERANCES[reading.measure][weak]


def _column(reading: Reading) -> int:
    return round(10 * (2 - float(reading.context["log10_lambda"])))


def _tilts(pairs: Found) -> tuple[Verdict, str]:
    """Theta never falls and d_adv never grows to the next weaker lambda.

    A step the other way by more than both gaps leave open refutes it; by less, nothing can be told.
    """
    against = unsure = steps = 0
    for pair in pairs.values():
        models = pair["models"]
        theta, distance = np.diff(models["theta_rad"]), np.diff(models["d_adv"])
        error = angle_errors(models)
        left = error[1:] + error[:-1] + FLAT
        # the centroids' half distance, which d_adv has where nothing leans, turns with w
        back, up = -theta - left, distance - left * max(1.0, abs(models["d_adv"][0]))
        steps += len(theta)
        wrong = (back > 0) | (up > 0)
        against += int(wrong.sum())
        unsure += int((((theta < -FLAT) | (distance > FLAT)) & ~wrong).sum())
    told = f"{against} of {steps} steps go the other way"
    if unsure:
        told += f"; {unsure} more do by less than the gaps leave open"
    return ("refuted" if against else "cannot tell" if unsure else "holds"), told


def angle_errors(models: Mapping[str, Sequence[float]]) -> NDArray[np.float64]:
    """How far each machine's direction may be from the exact one's, in radians: sqrt(gap / lambda) / ||w|| at most.

    The objective grows by lambda ||w - w*||^2 at least, because its penalty does.
    """
    gap = np.array(models["relative_gap"]) * np.array(models["objective"])
    relative = np.sqrt(gap / 10 ** np.array(models["log10_lambda"])) * np.array(models["margin"])
    found: NDArray[np.float64] = np.arcsin(np.minimum(relative, 1.0))
    return found


def _holds(good: bool) -> Verdict:
    return "holds" if good else "refuted"


def _nearest_centroid(pairs: Found) -> tuple[Verdict, str]:
    largest = max(float(pair["models"]["theta_rad"][0]) for pair in pairs.values())
    return _holds(largest < FLAT), f"largest theta {largest:.1g} over {len(pairs)} pairs"


def _u_shaped(pairs: Found) -> tuple[Verdict, str]:
    """The least test error is lower than at lambda 10^2 and at 10^-6."""
    inside = [name for name, pair in pairs.items() if _between(pair["models"]["n_err_test"])]
    outside = [name for name in pairs if name not in inside]
    told = f"{len(inside)} of {len(pairs)} pairs"
    return _holds(not outside), told + (f"; not {', '.join(outside)}" if outside else "")


def _between(errors: Sequence[float]) -> bool:
    return min(errors) < min(errors[0], errors[-1])


def _separable(pairs: Found) -> tuple[Verdict, str]:
    never = [name for name, pair in pairs.items() if min(pair["models"]["n_err_train"]) > 0]
    wanted = [name for name in NOT_SEPARABLE if name in pairs]
    return (
        _holds(never == wanted),
        f"{len(pairs) - len(never)} of {len(pairs)} pairs reach 0; not {', '.join(never) or 'none'}",
    )


RULES: Mapping[str, Callable[[Found], tuple[Verdict, str]]] = {
    "S1": _tilts,
    "S2": _nearest_centroid,
    "S3": _u_shaped,
    "S4": _separable,
}
