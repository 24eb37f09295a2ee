"""Runs side by side, in real processes: what fails is recorded, what is finished is kept."""

import copy
import dataclasses
import importlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
import torch
from filelock import FileLock

from clearance.experiments import engines
from clearance.experiments.build import build_data
from clearance.experiments.engines import SUBMISSIONS, LostError, Processes, Task, TaskError, report
from clearance.experiments.grid import plans_of, run_grid, run_task
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan, kept_findings
from clearance.vocabulary import Outcome


def records(findings):
    """Everything that was measured but the time it took."""
    return [
        r.to_json()
        for found in findings
        for r in found.records
        if r.measurement.name not in ("seconds", "memory")
    ]


def running(group):
    """How many processes of a group run; one that ended and was not collected does not."""
    count = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, its_group = place.read_text().rpartition(")")[2].split()[:3]
            count += state != "Z" and int(its_group) == group
    return count


def soon(holds, seconds=60.0):
    """Whether a condition comes to hold in time."""
    ends = time.monotonic() + seconds
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    return holds()


class Events:
    """Notes what a grid tells."""

    def __init__(self):
        self.seen = []

    def __call__(self, plan, event):
        self.seen.append((plan.method, event["event"]))

    def of(self, method):
        return [event for name, event in self.seen if name == method]


@pytest.fixture(scope="module")
def comparison(archive):
    """Three epochs: two methods that work, one that diverges."""
    methods = {
        "plain": Method(hidden=(8,), clip_norm=1.0),
        "foca": Method(way="foca", hidden=(8,), per_class=1, head_steps=4, clip_norm=1.0),
        "wild": Method(hidden=(8,), lr=1e9),
    }
    return Recipe(dataset=archive, epochs=3, batch_size=12, seeds=1, audits=("accuracy",), methods=methods)


@pytest.fixture(scope="module")
def blocked(comparison, tmp_path_factory):
    """The grid, two at a time, where the folder of one run cannot be made."""
    folder = tmp_path_factory.mktemp("two at a time")
    plans = plans_of(comparison)
    (folder / plans[0].folder).write_text("in the way")
    (folder / f"{plans[0].folder}.log").mkdir()  # its error output cannot be written either
    events = Events()
    return folder, run_grid(plans, build_data(comparison), folder, 2, events), events


def test_plans_go_seed_by_seed(comparison):
    plans = plans_of(Recipe(seeds=2, methods=comparison.methods))
    assert [(p.seed, p.method) for p in plans] == [(s, m) for s in (0, 1) for m in ("plain", "foca", "wild")]


def test_in_this_process_a_run_has_one_thread_as_in_others(comparison, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "clearance.experiments.grid._run", lambda *_, **__: seen.append(torch.get_num_threads())
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with suppress(AttributeError):  # of None, which is no findings
            run_grid(plans_of(comparison)[:1], build_data(comparison), None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_a_process_that_breaks_down_is_recorded_and_the_others_go_on(blocked):
    folder, findings, events = blocked
    assert [found.note.method for found in findings] == ["plain", "foca", "wild"]
    crashed = findings[0]
    assert crashed.note.outcome is Outcome.STOPPED
    assert crashed.note.status.startswith("failed: ")
    assert "must be a directory" in crashed.note.status
    assert str(folder) not in crashed.note.status  # reports are passed on
    assert crashed.records == ()
    assert events.of("plain")[-1] == "failed"
    assert findings[1].records
    assert events.of("foca")[0] == "start"
    assert events.of("foca")[-1] == "done"
    assert {"step", "audit"} <= set(events.of("foca"))


def test_a_run_that_diverges_says_so_and_is_measured(blocked):
    wild = blocked[1][2]
    assert wild.note.outcome is Outcome.DIVERGED
    assert "diverged at step" in wild.note.status
    found = [r.measurement for r in wild.records]
    errors = [one.value for one in found if (one.audit, one.name) == ("accuracy", "error")]
    assert errors
    assert min(errors) > 0.5


@pytest.mark.slow
def test_one_and_two_at_a_time_give_the_same_and_what_is_finished_is_kept(blocked, comparison, tmp_path):
    folder, findings, _ = blocked
    data, plans = build_data(comparison), plans_of(comparison)
    (folder / plans[0].folder).unlink()
    events = Events()
    completed = run_grid(plans, data, folder, 2, events)
    assert events.of("foca") == events.of("wild") == ["kept"]
    assert events.of("plain")[-1] == "done"
    assert records(completed[1:]) == records(findings[1:])
    alone = run_grid(plans[:2], data, tmp_path, 1, Events())
    assert records(alone) == records(completed[:2])
    assert [found.note for found in alone] == [found.note for found in completed[:2]]
    tensors = [f"{plan.folder}/model.safetensors" for plan in plans[:2]]
    assert all((folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in tensors)


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only there processes are copied")


def kill_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def wait_for_file(file: Path) -> str:
    while not file.exists():
        time.sleep(0.01)
    return "gone on"


def tell_and_return(value: int) -> int:
    report(event="note")
    return value


def end_while_answering() -> None:
    assert engines._parent is not None
    length_and_a_part = (10**6).to_bytes(4, "big") + b"begins"
    os.write(engines._parent.fileno(), length_and_a_part)
    os._exit(5)


def leave_running() -> int:
    return subprocess.Popen(["sleep", "600"]).pid


@pytest.fixture(scope="module")
def engine():
    """One pool for every test that does it no harm: to begin one takes seconds."""
    with Processes(1) as pool:
        yield pool


class TestProcesses:
    """The pool by itself."""

    def test_a_process_that_is_killed_takes_only_its_own_task(self, engine):
        killed = engine.submit(signal.raise_signal, signal.SIGKILL)
        after = engine.submit(len, "four")
        with pytest.raises(TaskError, match="the process was ended by SIGKILL"):
            killed.result()
        assert after.result() == 4

    def test_what_a_task_raises_is_one_line_and_the_whole_beside_it(self):
        with Processes(1, fresh=False) as engine:
            wrong, right = engine.submit(int, "four"), engine.submit(int, "4")
            with pytest.raises(TaskError, match=r"^ValueError: invalid literal for int") as caught:
                wrong.result()
            assert "Traceback" in caught.value.complaint
            assert right.result() == 4

    def test_a_task_has_a_process_of_its_own(self, engine):
        assert len({engine.submit(os.getpid).result() for _ in range(3)}) == 3

    def test_or_one_serves_all(self):
        with Processes(1, fresh=False) as engine:
            assert len({engine.submit(os.getpid).result() for _ in range(3)}) == 1

    def test_a_process_that_exits_says_so(self, engine):
        gone = engine.submit(os._exit, 7)
        with pytest.raises(TaskError, match="the process ended with code 7"):
            gone.result()
        assert engine.submit(len, "four").result() == 4

    @LINUX
    def test_a_new_process_is_a_copy_and_starts_without_what_earlier_tasks_left(self, engine):
        parents = {engine.submit(os.getppid).result() for _ in range(2)}
        engine.submit(os.chdir, "/").result()
        assert engine.submit(os.getcwd).result() == str(Path.cwd())
        assert len(parents) == 1
        assert os.getpid() not in parents

    @LINUX
    def test_the_compiler_that_an_optimizer_imports_does_not_count_as_memory_of_a_training(self, engine):
        assert engine.submit(eval, "'torch._dynamo' in __import__('sys').modules").result()

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process ends after its task")
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
    def test_no_process_outlives_its_parent(self, how):
        code = (
            "import queue, time\n"
            "from clearance.experiments.engines import Processes\n"
            "work = 'import clearance.experiments.engines as e, time; e.report(begun=True); time.sleep(600)'\n"
            "happened = queue.Queue()\n"
            "with Processes(2) as engine:\n"
            "    for _ in range(2):\n"
            "        task = engine.submit(exec, work)\n"
            "        task.listen(happened.put)\n"
            "        task.add_done_callback(lambda ended: happened.put(ended.exception()))\n"
            "    print(happened.get(), happened.get(), flush=True)\n"
            "    print(engine._original._group, flush=True)\n"
            "    time.sleep(600)\n"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            try:
                assert parent.stdout is not None
                assert parent.stdout.readline() == "{'begun': True} {'begun': True}\n"
                group = int(parent.stdout.readline())
                assert running(group) == 3  # an original and two copies
            finally:
                parent.send_signal(how)
        assert soon(lambda: not running(group))

    def test_what_cannot_be_pickled_fails_alone(self, engine):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            engine.submit(lambda: 1).result()
        assert engine.submit(len, "four").result() == 4

    @LINUX
    def test_an_original_that_dies_takes_its_copies_and_is_replaced(self):
        with Processes(2) as engine:
            engine.submit(len, "four").result()
            lost = [engine.submit(time.sleep, 600), engine.submit(kill_parent)]
            for task in lost:
                with pytest.raises(LostError, match="SIGKILL"):
                    task.result()
            assert [engine.submit(len, "four").result() for _ in range(2)] == [4, 4]

    @LINUX
    def test_an_original_outlives_the_thread_that_made_it(self):
        with ThreadPoolExecutor(1) as threads:
            engine = threads.submit(Processes, 1).result()
        with engine:
            assert engine.submit(os.getppid).result() == engine.submit(os.getppid).result()

    @LINUX
    def test_too_many_open_files_fail_their_task_alone(self, tmp_path):
        with Processes(2) as engine:
            engine.submit(len, "four").result()
            assert engine._original is not None
            at_work = engine.submit(wait_for_file, tmp_path / "go")
            assert soon(lambda: any(not worker.ready for worker in list(engine._alive)))
            here = resource.getrlimit(resource.RLIMIT_NOFILE)
            for place in (engine._original._group, os.getpid()):  # first the original, then this process
                before = resource.prlimit(place, resource.RLIMIT_NOFILE, (3, here[1]))
                try:
                    failed = engine.submit(len, "four").exception()
                finally:
                    resource.prlimit(place, resource.RLIMIT_NOFILE, before)
                assert isinstance(failed, LostError if place != os.getpid() else OSError)
                assert "open files" in str(failed)
            (tmp_path / "go").touch()
            assert at_work.result() == "gone on"
            assert engine.submit(len, "four").result() == 4

    @pytest.mark.parametrize("fresh", [True, False])
    def test_what_a_listener_raises_fails_its_task_alone(self, fresh):
        with Processes(1, fresh=fresh) as engine:
            for error in (BrokenPipeError, ValueError, SystemExit):
                task = engine.submit(tell_and_return, 4)
                task.listen(mock.Mock(side_effect=error("of the listener")))
                with pytest.raises(error, match="of the listener"):
                    task.result()
                assert engine.submit(len, "four").result() == 4

    def test_a_task_that_ends_in_the_middle_of_its_result_is_lost(self, engine):
        with pytest.raises(LostError, match="the process ended with code 5"):
            engine.submit(end_while_answering).result()

    def test_a_task_that_exits_is_an_error_of_its_own(self, engine):
        with pytest.raises(TaskError, match="SystemExit: 3"):
            engine.submit(sys.exit, 3).result()

    def test_a_task_has_nothing_to_read_and_what_it_prints_is_not_shown(self, capfd):
        with Processes(1) as engine:
            assert engine.submit(os.read, 0, 10).result() == b""
            engine.submit(print, "a word of a task").result()
        assert "a word of a task" not in capfd.readouterr().out

    def test_what_a_task_leaves_running_holds_nothing_up(self):
        with Processes(1) as engine:
            left = engine.submit(leave_running).result()
            assert engine.submit(len, "four").result() == 4
        os.kill(left, signal.SIGKILL)  # it is still there

    @LINUX
    def test_a_pool_without_tasks_does_not_wait_for_imports(self):
        with Processes(2) as engine:
            pass
        assert engine._original is not None
        assert engine._original._end() == -signal.SIGTERM

    def test_tasks_that_are_cancelled_at_the_end_say_so(self):
        engine = Processes(1)
        first, second = engine.submit(len, "four"), engine.submit(len, "four")
        assert soon(first.running)
        engine.shutdown(cancel_futures=True)
        assert first.result() == 4
        assert second.cancelled()
        assert not wait([first, second], timeout=0).not_done

    def test_a_function_that_cannot_be_imported_there_fails_alone(self, monkeypatch, tmp_path):
        (tmp_path / "only_here.py").write_text("def four(): return 4")
        with monkeypatch.context() as there:
            there.syspath_prepend(tmp_path)
            four = importlib.import_module("only_here").four
            with Processes(1, fresh=False) as engine:
                assert engine.submit(four).result() == 4
        with Processes(1, fresh=False) as engine:
            with pytest.raises(TaskError, match="No module named 'only_here'"):
                engine.submit(four).result()
            assert engine.submit(len, "four").result() == 4

    @pytest.mark.parametrize("at_work", [False, True])
    def test_an_interruption_ends_every_process(self, at_work):
        """Two at work, or about to be, ten waiting: all fail at once, and none of the waiting ones is begun."""
        tasks: list[Task] = []

        def interrupted():
            with Processes(2) as engine:
                if at_work:
                    engine.submit(len, "four").result()
                tasks.extend(engine.submit(time.sleep, 600) for _ in range(12))
                assert soon(lambda: sum(task.running() for task in tasks) == 2)
                assert not at_work or soon(
                    lambda: sum(not worker.ready for worker in list(engine._alive)) == 2
                )
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert {str(task.exception()) for task in tasks} == {
            "the process was ended by SIGTERM",
            "interrupted",
        }


def test_another_executor_may_take_the_place_of_the_processes(comparison, tmp_path):
    data, plans, events = build_data(comparison), plans_of(comparison)[:2], Events()
    with ThreadPoolExecutor(1) as engine:
        found = run_grid(plans, data, tmp_path / "threads", engine, events, send_data=True)
    assert records(found) == records(run_grid(plans, data, tmp_path / "here", None))
    ended = [method for method, event in events.seen if event == "done"]
    assert ended == ["foca", "plain"]  # the longest first


class Losing(ThreadPoolExecutor):
    """An executor that loses the first runs, as if their machines had died."""

    def __init__(self, losses):
        super().__init__(1)
        self.losses, self.runs = losses, 0

    def submit(self, function, /, *arguments, **options):
        if function is run_task:
            self.runs += 1
            if self.runs <= self.losses:
                lost: Future = Future()
                lost.set_exception(LostError("the node is gone"))
                return lost
        return super().submit(function, *arguments, **options)


def test_a_lost_run_is_submitted_at_most_three_times(comparison, tmp_path):
    data, plans = build_data(comparison), plans_of(comparison)[:1]
    notes: list[str] = []

    def heard(_, event):
        notes.extend([event["text"]] if event["event"] == "note" else [])

    with Losing(SUBMISSIONS - 1) as engine:
        (found,) = run_grid(plans, data, tmp_path / "twice", engine, heard)
    assert found.note is not None
    assert found.note.outcome is Outcome.FINISHED
    assert [note.partition(";")[0] for note in notes] == ["lost (the node is gone)"] * 2
    with Losing(100) as engine:
        (found,) = run_grid(plans, data, tmp_path / "always", engine)
    assert engine.runs == SUBMISSIONS
    assert found.note is not None
    assert found.note.status == "failed: the node is gone"


@dataclasses.dataclass(frozen=True)
class Deadly:
    """A model of the caller's that ends its process; counts how often."""

    count: Path

    def __call__(self):
        with self.count.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_local_process_that_is_killed_is_replaced_too(comparison, tmp_path):
    plan = dataclasses.replace(plans_of(comparison)[0], model=Deadly(tmp_path / "count"))
    (found,) = run_grid([plan], build_data(comparison), tmp_path, 1, Events())
    assert (tmp_path / "count").read_text() == "x" * SUBMISSIONS
    assert found.note is not None
    assert found.note.status == "failed: the process was ended by SIGKILL"


def test_an_interruption_reaches_runs_of_another_executor_through_the_folder(archive, tmp_path):
    """Only its progress tells the grid of the run, and only the folder tells the run that the grid has gone."""
    recipe = Recipe(dataset=archive, epochs=10**5, audits=(), methods={"plain": Method(hidden=(8,))})
    (plan,) = plans_of(dataclasses.replace(recipe, seeds=1))
    seen = []

    def interrupt(_, event):
        seen.append(event["event"])
        if event["event"] == "step":
            raise KeyboardInterrupt

    with (
        ThreadPoolExecutor(1) as engine,
        pytest.raises(KeyboardInterrupt),
    ):  # leaving the engine waits for the run
        run_grid([plan], build_data(recipe), tmp_path, engine, interrupt)
    assert seen == ["start", "step"]
    assert (tmp_path / plan.folder / "run.json").exists()
    assert not (tmp_path / plan.folder / "result.json").exists()
    assert not list(tmp_path.glob(".grid-*"))


def test_the_folder_of_a_grid_that_was_killed_is_removed(comparison, tmp_path):
    (tmp_path / ".grid-left").mkdir()
    (tmp_path / ".grid-at-work").mkdir()
    with FileLock(tmp_path / ".grid-at-work" / "lock"), ThreadPoolExecutor(1) as engine:
        run_grid(plans_of(comparison)[:1], build_data(comparison), tmp_path, engine)
    assert [path.name for path in tmp_path.glob(".grid-*")] == [".grid-at-work"]


class Elsewhere(ThreadPoolExecutor):
    """An executor whose workers have another version of torch."""

    def submit(self, function, /, *arguments, **options):
        future: Future = Future()
        future.set_result({**function(*arguments, **options), "torch": "1.0"})
        return future


@pytest.mark.parametrize(
    ("engine", "model", "complaint"),
    [
        (
            ProcessPoolExecutor,
            lambda: None,
            "whose workers can do its tasks; ProcessPoolExecutor cannot: .*pickle",
        ),
        (Elsewhere, None, r"workers with the same versions as here; Elsewhere has torch 1\.0, here "),
    ],
)
def test_an_engine_that_cannot_do_a_run_is_refused_before_any(comparison, tmp_path, engine, model, complaint):
    plan = dataclasses.replace(plans_of(comparison)[0], model=model)
    with engine(1) as executor, pytest.raises(ValueError, match=complaint):
        run_grid([plan], build_data(comparison), tmp_path, executor)
    assert list(tmp_path.iterdir()) == []


def waited(condition, process, seconds=120):
    """Wait until something is so, as long as a process lives."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_an_interrupted_command_goes_on_where_it_stood(archive, tmp_path):
    """Ctrl-C after the first checkpoint: exit 130, nobody holds the run, and the same run continues."""
    recipe = Recipe(
        dataset=archive, epochs=200, batch_size=12, seeds=1, audits=("accuracy",),
        methods={"plain": Method(hidden=(8,), lr=0.01)},
    )  # fmt: skip
    (tmp_path / "mine.yaml").write_text(
        f"dataset: {archive}\nepochs: 200\nbatch_size: 12\nseeds: 1\naudits: [accuracy]\n"
        "methods: {plain: {base: none, hidden: [8], lr: 0.01}}\n"
    )
    (plan,) = plans_of(recipe)
    out = tmp_path / "out"
    folder = out / "runs" / plan.folder
    command = [
        sys.executable,
        "-m",
        "clearance.cli",
        "compare",
        "--recipe",
        "mine.yaml",
        "--out",
        "out",
        "--jobs",
        "1",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    waited(lambda: list(folder.glob("checkpoints/0*/state.json")), process)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted. The same command resumes." in complaint
    assert "Traceback" not in complaint
    with FileLock(folder / "lock").acquire(timeout=10):
        assert not (folder / "result.json").exists()
    logged = (folder / "metrics.jsonl").read_text("ascii").splitlines()

    steps = []
    (found,) = run_grid(
        [plan], build_data(recipe), out / "runs", 1, lambda _, event: steps.append(event.get("step", 0))
    )
    assert min(step for step in steps if step) > 500
    assert found.note is not None
    assert found.note.status == "finished at step 1000"
    again = (folder / "metrics.jsonl").read_text("ascii").splitlines()
    assert len(again) == 200
    assert [json.loads(line)["step"] for line in again] == list(range(5, 1005, 5))
    assert again[:100] == logged[:100]


@pytest.mark.slow
def test_each_plan_may_have_images_of_its_own(comparison, tmp_path):
    both = [comparison, dataclasses.replace(comparison, left_out=(0,))]
    plans = [RunPlan(recipe, "plain", 0) for recipe in both]
    images = [build_data(recipe) for recipe in both]
    first = run_grid(plans, images, tmp_path, 2, Events())
    events = Events()
    assert records(run_grid(plans, images, tmp_path, 1, events)) == records(first)
    assert events.seen == [("plain", "kept")] * 2
    run_grid(plans, images[::-1], tmp_path, 1, events)  # of other images nothing is kept
    assert ("plain", "start") in events.seen
    with pytest.raises(ValueError, match="shorter"):
        run_grid(plans, images[:1], tmp_path, 1, events)


def test_findings_on_the_shelf_are_those_of_the_runs(comparison, tmp_path):
    plans, data = [RunPlan(comparison, "plain", seed) for seed in (0, 1)], build_data(comparison)
    found = run_grid(plans, data, tmp_path, None)
    alone = [kept_findings(plan, data, tmp_path) for plan in plans]
    assert found == alone
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == alone


def test_runs_in_threads_of_one_process_are_those_of_a_process_alone(comparison):
    methods = {"dropout": Method(hidden=(8,), dropout=0.5)}
    recipe = dataclasses.replace(comparison, methods=methods, seeds=4)
    plans, data = plans_of(recipe), build_data(recipe)
    with ThreadPoolExecutor(4) as threads:
        found = run_grid(plans, data, None, threads)
    assert len(records(found)) > 4
    assert records(found) == records(run_grid(plans, data, None, None))
