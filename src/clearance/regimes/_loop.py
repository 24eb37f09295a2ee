"""The loop itself: advance, log, save, stop; then complete the model and judge it."""

import time
from collections.abc import Callable

from clearance.regimes._distributed import copy_from_first, in_any_process
from clearance.regimes._guards import collapse_reason, untrained_reason
from clearance.regimes._session import Session, final_state, load_final_state
from clearance.regimes.result import FitResult, Progress
from clearance.runs import RunDirectory
from clearance.vocabulary import Outcome, Status

STEPS_BETWEEN = 50  # looks for a collapse, at least


def run_session(
    session: Session,
    run: RunDirectory | None,
    checkpoint_every: int,
    on_step: Callable[[Progress], object] | None,
) -> FitResult:
    """Train to the end, or to the first failure or stop; continue where `run` was left, and keep it there."""
    if run is not None and run.finished:
        return _read_back(session, run)
    if run is not None and (checkpoint := run.latest()) is not None:
        session.load_state_dict(checkpoint.state)
    outcome = Outcome.FINISHED
    reason = ""
    total = session.total_steps
    while session.step < total:
        began = time.perf_counter()
        failure = session.advance()
        session.seconds += time.perf_counter() - began
        if failure is not None:
            outcome, reason = Outcome.DIVERGED, failure
            break
        row = session.end_epoch() if session.at_epoch_end else None
        if row is not None and run is not None:
            run.log(row)
        looked = row is not None and _is_looked_at(session.step, session.steps_per_epoch)
        if looked and (flat := collapse_reason(session.model, session.data)) is not None:
            outcome, reason = Outcome.COLLAPSED, flat
            break
        if run is not None and session.step % checkpoint_every == 0 and session.step < total:
            run.save(session.step, session.state_dict())
        stop = on_step is not None and on_step(Progress(session.step, total)) == "stop"
        if in_any_process(stop, session.data.images.device) and session.step < total:
            outcome, reason = Outcome.STOPPED, "asked to"
            break
    return _close(session, run, Status(outcome, session.step, reason))


def _is_looked_at(step: int, epoch: int) -> bool:
    """Whether a collapse is looked for at the end of this epoch: the first, and others some steps apart.

    Looking takes as long as a step, which is nothing beside an epoch unless that has two.
    """
    return step <= epoch or step // STEPS_BETWEEN > (step - epoch) // STEPS_BETWEEN


def _close(session: Session, run: RunDirectory | None, status: Status) -> FitResult:
    """Complete the model, judge it, and keep it."""
    if status.outcome is not Outcome.DIVERGED:
        began = time.perf_counter()
        copy_from_first(session.model, session.objective)
        session.training.finish()
        copy_from_first(session.model)
        session.seconds += time.perf_counter() - began
        if status.good:
            status = _judged(session, status)
    session.model.eval()
    if run is not None and status.outcome is not Outcome.STOPPED:
        result = {
            "outcome": str(status.outcome), "step": status.step, "reason": status.reason,
            "seconds": session.seconds, "history": session.history, "counts": session.training.counts(),
            "diagnostics": session.diagnostics, "label_noise": session.label_noise,
        }  # fmt: skip
        run.finish(final_state(session), result)
    counts = session.training.counts()
    return FitResult(session.model, status, session.history, session.seconds, counts, session.diagnostics)


def _judged(session: Session, status: Status) -> Status:
    """A finished run's status, or that it learnt nothing."""
    problem = untrained_reason(session.model, session.data, session.label_noise)
    return status if problem is None else Status(problem[0], session.step, problem[1])


def _read_back(session: Session, run: RunDirectory) -> FitResult:
    weights, result = run.result()
    load_final_state(session, weights)
    session.model.eval()
    status = Status(Outcome(result["outcome"]), result["step"], result["reason"])
    trained = status.outcome in (Outcome.FINISHED, Outcome.COLLAPSED) and status.step == session.total_steps
    if trained and result.get("label_noise", session.label_noise) != session.label_noise:
        # other labels are known to be wrong now
        status = _judged(session, Status(Outcome.FINISHED, status.step))
    return FitResult(
        session.model,
        status,
        list(result["history"]),
        result["seconds"],
        result["counts"],
        list(result.get("diagnostics", [])),
    )
