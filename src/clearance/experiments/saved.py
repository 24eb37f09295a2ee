"""Trained models, read back from a run's directory."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from clearance.experiments.build import RunData, build_data, empty_model
from clearance.experiments.draws import drawn_data
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe, from_tree
from clearance.experiments.trained_start import FACTS
from clearance.models import Classifier
from clearance.models._running import with_channels_last
from clearance.runs import read_result


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A finished run: its model, and the recipe, method and seed that made it."""

    model: Classifier
    recipe: Recipe
    method: str
    seed: int

    def data(self, root: str | None = None) -> RunData:
        """The images that it was trained and measured on; `root` if they are no longer where they were."""
        moved = self.recipe if root is None else dataclasses.replace(self.recipe, root=root)
        return drawn_data(moved, build_data(moved), self.seed)


def load_run(run_dir: str | Path) -> SavedRun:
    """A finished run that ``clearance compare`` or ``clearance train`` left.

    Raises:
        FileNotFoundError: If the directory holds no such run.
        ValueError: If the run is not finished or its files are damaged.
    """
    folder = Path(run_dir)
    if not (folder / FACTS).exists():
        near = [path.parent.name for path in sorted(folder.glob(f"*/{FACTS}"))]
        hint = f" It holds the runs {', '.join(near)}; name one of them." if near else ""
        if not folder.exists():
            alike = sorted(path.parent.name for path in folder.parent.glob(f"{folder.name}*/{FACTS}"))
            hint = (
                f" There is {', '.join(alike)}." if alike else " For a network of your own give MODULE:NAME."
            )
        got = f"one without {FACTS}" if folder.is_dir() else "a file" if folder.is_file() else "no folder"
        if folder.is_file():
            hint = f" If it holds weights, name what builds the network, too: MODULE:NAME --weights {folder.name}."
        raise FileNotFoundError(f"{folder} must be the directory of a finished run; got {got}.{hint}")
    try:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{folder / FACTS} must hold what the run was, as JSON; got a file that cannot be read: {error}. It was "
            f"damaged after it was written. Restore it, or delete {folder} and train again."
        ) from error
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in facts["method"].items()}
    method = Method(**settings)
    model = empty_model(facts["model"], method, tuple(facts["shape"]), len(facts["classes"]))
    weights, _ = read_result(folder)
    prefix = "model."
    model.load_state_dict({n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)})
    recipe = from_tree(facts["recipe"], FACTS)
    if recipe.channels_last:
        model = with_channels_last(model)
    return SavedRun(model.eval(), recipe, facts["name"], facts["seed"])


def load_model(run_dir: str | Path) -> Classifier:
    """The trained classifier of a finished run, in evaluation mode.

    Args:
        run_dir: The directory that ``clearance train`` or ``clearance compare`` left, for example
            ``clearance-runs/plain-seed0-1a2b3c4d``, as ``clearance train`` prints it; weights are read from
            safetensors, nothing is unpickled.

    Raises:
        FileNotFoundError: If the directory holds no finished run; the message names runs below it.
        ValueError: If the run is not finished or its files are damaged.
    """
    return load_run(run_dir).model
