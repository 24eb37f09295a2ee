"""A run's directory: killed at any moment, the same command continues to the same bits.

A run is opened with a *fingerprint* of everything that affects its numbers. The directory then belongs
to that fingerprint and, while it is open, to one process. Steps are logged and the state is saved at
intervals. After a kill, opening the run again cuts the metrics to the newest checkpoint, so that repeated
steps are logged only once::

    run.json                    the fingerprint; written first
    lock                        held by the process that uses the run
    metrics.jsonl               one line for every logged step
    checkpoints/00000120/       tensors.safetensors and state.json, renamed into place
    model.safetensors           the trained weights
    result.json                 written last; its presence means "finished"
    manifest.json               the SHA-256 of each of these files; a checkpoint has its own

>>> import json, tempfile, torch
>>> from pathlib import Path
>>> from clearance.runs import RunDirectory
>>> def train(path, until):
...     with RunDirectory.open(path, {"seed": 0}) as run:
...         found = run.latest()
...         step, weight = (found.step, found.state["weight"]) if found else (0, torch.zeros(2))
...         while step < until:
...             step, weight = step + 1, weight + 0.5
...             run.log({"step": step, "weight": weight[0].item()})
...             if step % 2 == 0:
...                 run.save(step, {"weight": weight})
...     return step, weight
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = train(folder, until=3)  # step 3 is lost: the newest checkpoint is from step 2
...     step, weight = train(folder, until=5)
...     logged = Path(folder, "metrics.jsonl").read_text().splitlines()
>>> step, weight
(5, tensor([2.5000, 2.5000]))
>>> [json.loads(line)["step"] for line in logged]
[1, 2, 3, 4, 5]

A file that was damaged or changed after it was written is an error when it is read. A run without its result is not
finished, and goes on from its newest checkpoint, or from the beginning.
Files are JSON and safetensors, without pickle. For non-finite floats JSON files hold ``NaN``,
``Infinity`` and ``-Infinity``, as Python's ``json`` reads and writes them.
"""

from clearance.runs.directory import RunDirectory as RunDirectory
from clearance.runs.directory import check_finished as check_finished
from clearance.runs.directory import read_fingerprint as read_fingerprint
from clearance.runs.directory import read_result as read_result
from clearance.runs.manifest import read_file as read_file
from clearance.runs.manifest import write_files as write_files
