"""What was tried with other packages: version, lines of user code, seconds and result, as a table of Markdown.

    python benchmarks/compatibility.py       # prints the second table of docs/compatibility.md

Every row is a function with the code that a user writes for it, marked ``# +``; its result is checked, and a row that
fails says so. Nothing is downloaded: weights are random or trained on scikit-learn's digits, trackers write to a
temporary folder. A package that is not installed has a row without a result.
"""

import contextlib
import importlib.metadata
import inspect
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import clearance as cl

TRAIN, TEST = cl.load_dataset("digits"), cl.load_dataset("digits", split="test")
SIDE = 32


def declare_missing_operators() -> str:
    """Make a torchvision that pip gave beside a CPU build of torch importable: a star for the version, else nothing."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return ""
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)
        return " *"
    return ""


KEPT: list[Any] = []


def network() -> nn.Module:
    """A perceptron, trained a little."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(TRAIN.images), TRAIN.labels).backward()
        optimizer.step()
    return module.eval()


def same(model: Any, module: Any, images: torch.Tensor) -> str:
    """That both give the same logits, after normalisation."""
    with torch.no_grad():
        output = module((images - model.mean) / model.std)
        output = getattr(output, "logits", output)
        gap = float((model(images) - output).abs().max() / output.abs().max())
    if gap > 1e-5:
        raise ValueError(f"logits differ by {gap:.1g} of the largest")
    features = model.features(images).shape[1]
    return f"the same logits; {features} features"


def hugging_face(folder: Path) -> str:
    """`load_pretrained("hf:FOLDER")`, a ResNet with image processor and class names."""
    import transformers

    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    module = transformers.ResNetForImageClassification(config).eval()
    module.save_pretrained(folder)
    processor = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": {"height": SIDE, "width": SIDE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    model = cl.load_pretrained(f"hf:{folder}", verbose=False)  # +
    return same(model, module, torch.rand(4, 3, SIDE, SIDE))


def averaged_in_transformers(folder: Path) -> str:
    """`wrap` of DeiT with its teacher's head."""
    del folder
    import transformers

    config = transformers.DeiTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=SIDE,
        patch_size=8,
    )
    module = transformers.DeiTForImageClassificationWithTeacher(config).eval()
    images = torch.rand(4, 3, SIDE, SIDE)
    model = cl.wrap(module, example=images, verbose=False)  # +
    return same(model, module, images)


def datasets_library(folder: Path) -> str:
    """`fit` and `audit` on a Dataset of pictures."""
    del folder
    import datasets
    from PIL import Image

    def made(data: cl.ImageSet) -> Any:
        pictures = [Image.fromarray((one[0].numpy() * 255).astype(np.uint8)) for one in data.images]
        columns = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(data.classes))}
        return datasets.Dataset.from_dict(
            {"image": pictures, "label": data.labels.tolist()}, features=datasets.Features(columns)
        )

    train, test = made(TRAIN), made(TEST)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = cl.wrap(module, example=TEST.images[:4], verbose=False)
    cl.fit(model, cl.training.EndToEnd(), train, epochs=5, batch_size=32)  # +
    card = cl.audit(model, train=train, test=test, audits=["accuracy"])  # +
    return f"test error {100 * card.measurements[0].value:.1f} %"


def timm_model(folder: Path) -> str:
    """`load_pretrained("timm:resnet10t", FILE)`."""
    import timm

    module = timm.create_model("resnet10t", num_classes=3).eval()
    torch.save(module.state_dict(), folder / "best.pth")
    model = cl.load_pretrained("timm:resnet10t", folder / "best.pth", verbose=False)  # +
    return same(model, module, torch.rand(2, 3, 64, 64))


def averaged_in_timm(folder: Path) -> str:
    """`wrap` of distilled DeiT, LeViT, SwiftFormer, EfficientFormer."""
    del folder
    import timm

    images = torch.rand(2, 3, 224, 224)
    found = []
    for name in ("deit_tiny_distilled_patch16_224", "levit_128s", "swiftformer_xs", "efficientformer_l1"):
        module = timm.create_model(name, num_classes=5).eval()
        model = cl.wrap(module, example=images, verbose=False)  # +
        found.append(same(model, module, images).rpartition("; ")[2].removesuffix(" features"))
    return f"the same logits; {', '.join(found)} features"


def volo(folder: Path) -> str:
    """`black_box` of VOLO, whose second head is not averaged."""
    del folder
    import timm

    images = torch.rand(2, 3, 224, 224)
    module = timm.create_model("volo_d1_224", num_classes=5).eval()
    model = cl.models.black_box(module, example=images, verbose=False)  # +
    return same(model, module, images).partition(";")[0]


def torchvision_model(folder: Path) -> str:
    """`load_pretrained("torchvision:squeezenet1_1", FILE)`."""
    import torchvision

    module = torchvision.models.squeezenet1_1(num_classes=3).eval()
    torch.save(module.state_dict(), folder / "best.pth")
    model = cl.load_pretrained(  # +
        "torchvision:squeezenet1_1", folder / "best.pth", head="classifier", verbose=False  # +
    )  # fmt: skip
    return same(model, module, torch.rand(2, 3, 224, 224))


def lightning_checkpoint(folder: Path) -> str:
    """`load_pretrained("lightning:FILE", module=...)`."""
    import lightning.pytorch as lightning

    class Net(lightning.LightningModule):
        example_input_array = torch.zeros(1, 1, 8, 8)

        def __init__(self, width: int) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x)

    module = Net(width=24).eval()
    trainer = lightning.Trainer(logger=False, accelerator="cpu", default_root_dir=folder)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(folder / "last.ckpt")
    model = cl.load_pretrained(f"lightning:{folder}/last.ckpt", module=Net, verbose=False)  # +
    return same(model, module, TEST.images[:8])


def checks_of_scikit_learn(folder: Path) -> str:
    """`ClearanceClassifier`: `check_estimator`, in a Pipeline in GridSearchCV."""
    del folder
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler
    from sklearn.utils.estimator_checks import check_estimator

    from clearance.integrations.sklearn import ClearanceClassifier  # +

    small = ClearanceClassifier(hidden=(16,), epochs=30, batch_size=16, random_state=0)
    checks = [one["status"] for one in check_estimator(small, on_fail=None)]
    x, y = load_digits(return_X_y=True)
    ways = [None, cl.training.EndToEnd(cl.losses.LargeMarginLoss(("input",))), cl.training.FOCA()]  # +
    pipeline = make_pipeline(MinMaxScaler(), ClearanceClassifier(epochs=5, random_state=0))  # +
    search = GridSearchCV(pipeline, {"clearanceclassifier__way": ways}, cv=2).fit(x[:1200], y[:1200])  # +
    return (
        f"{checks.count('passed')} checks passed, {checks.count('failed')} failed, {checks.count('skipped')} skipped; "
        f"best of three ways {100 * search.score(x[1200:], y[1200:]):.1f} % right"
    )


def card() -> cl.Card:
    """An audit with many numbers."""
    model = cl.wrap(network(), example=TEST.images[:4], verbose=False)
    return cl.audit(
        model, train=TRAIN, test=TEST, audits=["accuracy", "robustness", "calibration"], images=40
    )


def mlflow_run(folder: Path) -> str:
    """`card.log_to(mlflow)`."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    made = card()
    mlflow.set_tracking_uri((folder / "runs").as_uri())
    with mlflow.start_run() as run:
        made.log_to(mlflow)  # +
    found = mlflow.get_run(run.info.run_id).data.metrics
    if set(found) != set(made.flat()):
        raise ValueError("not every number arrived")
    return f"{len(found)} numbers read back, and the page"


def wandb_run(folder: Path) -> str:
    """`card.log_to(wandb_run)`, offline."""
    import wandb

    made = card()
    run = wandb.init(mode="offline", dir=folder, project="audits", settings=wandb.Settings(silent=True))
    made.log_to(run)  # +
    found = dict(run.summary)
    run.finish()
    if not set(made.flat()) <= set(found):
        raise ValueError("not every number arrived")
    return f"{len(made.flat())} numbers in the run's summary, and the page"


def tensorboard_run(folder: Path) -> str:
    """`card.log_to(SummaryWriter)`."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    made = card()
    with SummaryWriter(folder) as writer:
        made.log_to(writer)  # +
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    if set(events.Tags()["scalars"]) != set(made.flat()):
        raise ValueError("not every number arrived")
    return f"{len(made.flat())} numbers read back"


def optuna_study(folder: Path) -> str:
    """`fit(on_epoch=...)` reports and prunes."""
    del folder
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        model = cl.wrap(module, example=TEST.images[:4], verbose=False)
        rate = trial.suggest_float("rate", 1e-4, 0.3, log=True)

        def on_epoch(row: Any) -> None:  # +
            trial.report(row["validation_error"], int(row["epoch"]))  # +
            if trial.should_prune():  # +
                raise optuna.TrialPruned  # +

        train, validation = TRAIN.split(0.8, seed=0)
        way, step = cl.training.EndToEnd(), partial(torch.optim.SGD, lr=rate, momentum=0.9)
        result = cl.fit(
            model,
            way,
            train,
            epochs=5,
            batch_size=32,
            optimizer=step,
            validation=validation,
            on_epoch=on_epoch,
        )  # +
        return result.history[-1]["validation_error"]

    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    study.optimize(objective, n_trials=10)
    pruned = sum(one.state is optuna.trial.TrialState.PRUNED for one in study.trials)
    return f"{pruned} of 10 trials pruned; best validation error {100 * study.best_value:.1f} %"


def compiled(folder: Path) -> str:
    """`wrap` of a module from `torch.compile`."""
    del folder
    module = network()
    whole: Any = torch.compile(module, backend="eager")
    return same(cl.wrap(whole, example=TEST.images[:4], verbose=False), module, TEST.images)  # +


def black_boxes(folder: Path) -> str:
    """`black_box` of a scripted module, of one quantised to 8 bits, of a function that returns lists."""
    del folder
    module = network()
    kinds = {
        "scripted": torch.jit.script(module),
        "quantised": torch.ao.quantization.quantize_dynamic(module, {nn.Linear}),
        "function": lambda images: module(images).tolist(),
    }
    found = []
    for name, call in kinds.items():
        model = cl.models.black_box(call, example=TEST.images[:4], verbose=False)  # +
        made = cl.audit(model, train=TRAIN, test=TEST, images=20)
        left = [one["audit"].replace("_", " ") for one in made.report.recipe.get("audits_left_out", [])]
        error = 100 * made.measurements[0].value
        found.append(f"{name}: error {error:.1f} %" + (f", without {', '.join(left)}" if left else ""))
    return "; ".join(found)


ROWS: list[tuple[str, Callable[[Path], str]]] = [
    ("transformers", hugging_face),
    ("transformers", averaged_in_transformers),
    ("datasets", datasets_library),
    ("timm", timm_model),
    ("timm", averaged_in_timm),
    ("timm", volo),
    ("torchvision", torchvision_model),
    ("lightning", lightning_checkpoint),
    ("scikit-learn", checks_of_scikit_learn),
    ("mlflow-skinny", mlflow_run),
    ("wandb", wandb_run),
    ("tensorboard", tensorboard_run),
    ("optuna", optuna_study),
    ("torch", compiled),
    ("torch", black_boxes),
]


def row(package: str, tried: Callable[[Path], str], note: str) -> str:
    """One row of the table."""
    about = (inspect.getdoc(tried) or "").rstrip(".")
    lines = sum(line.rstrip().endswith("# +") for line in inspect.getsource(tried).splitlines())
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"| {package} | not installed | {about} | | | not tried |"
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            result = tried(Path(folder))
    except Exception as error:  # noqa: BLE001 - a row that fails says so, and the others go on
        result = f"**fails**: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
    if package in ("torchvision", "timm"):
        version += note
    return f"| {package} | {version} | {about} | {lines} | {time.perf_counter() - began:.0f} s | {result} |"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    note = declare_missing_operators()
    print("| package | version | what was tried | lines | time | result |\n|---|---|---|---|---|---|")
    failed = False
    for package, tried in ROWS:
        found = row(package, tried, note)
        failed |= "**fails**" in found
        print(found, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
