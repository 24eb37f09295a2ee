"""A torchvision that does not fit the installed torch, as pip gives it beside a CPU build, stops nothing."""

import os
import subprocess
import sys

STUB = """
raise RuntimeError("operator torchvision::nms does not exist")
"""

CODE = """
import sys
import numpy as np, torch, clearance as cl
from clearance.cli.__main__ import main
from clearance.data import gaussian_images

try:
    import torchvision
except RuntimeError as error:
    print(error)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
train, test = gaussian_images(seed=0), gaussian_images(seed=1)
model = cl.wrap(net, example=test.images[:4])
cl.fit(model, cl.training.EndToEnd(), train, steps=2)
card = cl.audit(model, train=train, test=test, audits=["accuracy", "robustness"])
assert len(card.measurements) > 1
card.save("page.html")
for name, data in (("train", train), ("test", test)):
    np.savez(name, images=data.images.numpy(), labels=data.labels.numpy())
audit = "audit net.py:net --train npz:train.npz --test npz:test.npz --audits accuracy"
for words in (["list"], audit.split()):
    try:
        main(words)
    except SystemExit as ended:
        assert not ended.code, ended.code
extras = {"torchvision", "transformers", "lightning", "timm", "mlflow", "wandb", "tensorboard", "optuna"}
assert not extras & set(sys.modules)
"""


NET = """
import torch

def net():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
"""


def test_training_auditing_and_commands_work_beside_a_broken_torchvision(tmp_path):
    stub = tmp_path / "stub" / "torchvision"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text(STUB)
    (tmp_path / "net.py").write_text(NET)
    path = os.pathsep.join([str(stub.parent), *(part for part in sys.path if part)])
    done = subprocess.run(
        # old matplotlib uses old names of pyparsing, whose warning is both
        [sys.executable, "-W", "error::UserWarning", "-W", "ignore::DeprecationWarning", "-c", CODE],
        env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("operator torchvision::nms does not exist")
