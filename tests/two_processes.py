"""Two processes of torch.distributed that play the same scenes; a test file is itself what they run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

COUNT = 2
SECONDS = 180


def play(scenes):
    """One of the two: every scene of its rank, kept as JSON; for ``if __name__ == "__main__"``.

    Ends without taking the interpreter down: threads of torch that ask for its lock then are cut off in the midst of
    C++, which now and then aborts a process that has told all it had to.
    """
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), COUNT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=COUNT)
    told = {scene.__name__: scene(rank) for scene in scenes}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)


def told_by_both(file, folder):
    """What each process that runs this file has to tell, by the names of scenes."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(Path(file).resolve())]
    both = [
        subprocess.Popen(
            [*command, str(rank), str(folder)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(COUNT)
    ]
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in both]
    finally:
        for process in both:
            process.kill()
            process.communicate()
    assert [process.returncode for process in both] == [0] * COUNT, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(COUNT)]


def close(first, second):
    """Numbers by name agree as far as two orders of summation let them."""
    assert first.keys() == second.keys()
    for name in first:
        one, other = torch.tensor(first[name]), torch.tensor(second[name])
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
