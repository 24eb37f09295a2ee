"""Counts of the code: lines, files, importers, circles, public names, and the files that a call passes.

    python tools/house.py [ROOT]

ROOT is a checkout, this one by default; the calls use the `clearance` that is imported, which must be ROOT's
(PYTHONPATH=ROOT/src). `--only size,imports,public,calls` measures some of it; `--files` lists every file passed.
"""

import argparse
import ast
import contextlib
import importlib
import io
import os
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import migration
import torch
from torch import nn

HERE = Path(__file__).resolve().parents[1]
PACKAGE = "clearance"


def lines(files: list[Path]) -> int:
    """Lines of all these files."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


def python_below(folder: Path) -> list[Path]:
    """Python files below a folder, none where there is no such folder."""
    return sorted(folder.rglob("*.py"))


def size(root: Path) -> dict[str, Any]:
    """Lines and files of library, papers and tests."""
    library = python_below(root / "src" / PACKAGE)
    inside = [path for path in library if "reproductions" in path.parts]
    papers = inside + python_below(root / "papers")
    rest = [path for path in library if path not in inside]
    groups = {
        "src/clearance, papers and all": library,
        "src/clearance without papers": rest,
        "papers (inside the package, or beside it)": papers,
        "tests": python_below(root / "tests"),
        "examples": python_below(root / "examples"),
        "benchmarks": python_below(root / "benchmarks"),
    }
    return {name: f"{lines(files)} lines in {len(files)} files" for name, files in groups.items()}


# ----------------------------------------------------------------------------------------------------- imports


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of the library by its dotted name; a package by its own."""
    found = {}
    for path in python_below(root / "src" / PACKAGE):
        parts = path.relative_to(root / "src").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the library that a file imports anywhere, functions too; not what type checkers alone see."""
    found: set[str] = set()
    for node in _nodes(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in inner}
    return found & modules.keys()


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    if isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _nodes(child)


def circles_of(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            together: list[str] = []
            while not together or together[-1] != node:
                together.append(stack.pop())
            if len(together) > 1:
                found.append(sorted(together))

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in index:
            visit(node)
    return found


def ways_around(graph: dict[str, set[str]], inside: set[str]) -> int:
    """How many closed walks there are that pass no module twice, within one component."""

    def walks(start: str, here: str, seen: set[str]) -> int:
        count = 0
        for other in graph[here] & inside:
            if other == start:
                count += 1
            elif other > start and other not in seen:
                count += walks(start, other, seen | {other})
        return count

    return sum(walks(start, start, {start}) for start in inside)


def imports(root: Path) -> dict[str, Any]:
    """Files with one importer, and circles."""
    modules = modules_of(root)
    graph = {name: imports_of(path, modules) - {name} for name, path in modules.items()}
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, others in graph.items():
        for other in others:
            importers[other].add(name)

    def room(name: str) -> str:
        return name.rpartition(".")[0]

    def one(name: str, *, with_packages: bool) -> bool:
        users = importers[name] if with_packages else importers[name] - packages
        return len(users) == 1 and all(room(user) == room(name) for user in users)

    files = [name for name in modules if name not in packages]
    single = [name for name in files if len(importers[name]) == 1 and one(name, with_packages=True)]
    loose = [name for name in files if one(name, with_packages=False)]
    plain = {name: others - packages for name, others in graph.items() if name not in packages}
    circles = circles_of(plain)
    return {
        "files with one importer, in their own room": len(single),
        "files with one importer, in their own room (where a room's __init__ is no importer)": len(loose),
        "import circles (strongly connected)": f"{len(circles)}: "
        + "; ".join(", ".join(each) for each in circles),
        "ways around them (elementary circles)": sum(ways_around(plain, set(each)) for each in circles),
        "import circles, a room's __init__ taken for a module": len(circles_of(graph)),
    }


def public(root: Path) -> dict[str, Any]:
    """Names in `__all__` at the top and in packages whose names have no underscore."""
    counts = {}
    shown: set[str] = set()
    for name, path in modules_of(root).items():
        if path.name != "__init__.py" or any(part.startswith("_") for part in name.split(".")):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                counts[name] = len(ast.literal_eval(node.value))
                if name == PACKAGE:
                    shown = set(ast.literal_eval(node.value))
    top = counts.pop(PACKAGE, 0)
    near = sum(count for name, count in counts.items() if name.removeprefix(f"{PACKAGE}.") in shown)
    rooms = ", ".join(f"{name.removeprefix(PACKAGE + '.')} {count}" for name, count in counts.items())
    words = f"{top + near}: {top} at the top, {near} in rooms among these; all rooms {sum(counts.values())} ({rooms})"
    return {"public names": words}


# ----------------------------------------------------------------------------------------------- what a call passes


def passed(call: Callable[[], object]) -> set[str]:
    """Files of the library whose functions a second call runs; the first has done the imports."""
    call()
    home = str(Path(importlib.import_module(PACKAGE).__file__ or "").parent) + os.sep
    found: set[str] = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(home):
            found.add(code.co_filename.removeprefix(home))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def _loss_call(*layers: str) -> Callable[[], object]:
    features = torch.rand(8, 5, requires_grad=True)
    head = nn.Linear(5, 4)
    outputs = migration.first("clearance:Outputs")(features, head(features), head, {"input": features})
    labels = torch.arange(8) % 4
    kind = migration.loss_class("LargeMarginLoss")
    return lambda: kind(layers)(outputs, labels).total.backward(retain_graph=True)


class _Rounded(nn.Module):
    """Pixels in steps, which gradients do not pass: the audit goes on to every attack that it has."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (4 * images).round().flatten(1) / 4


def _robustness_call(extractor: nn.Module) -> Callable[[], object]:
    library = migration.first("clearance")
    robustness = migration.first("clearance.audits:Robustness")
    images, labels = torch.rand(24, 1, 6, 6), torch.arange(24) % 3
    model = library.Classifier(extractor, nn.Linear(36, 3)).eval()
    train = test = migration.first("clearance.data.intake:as_image_set")((images, labels))
    audit = robustness()
    return lambda: audit(model, train, test)


NET = """
import torch
def small():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
"""


def _outside_call(folder: Path) -> Callable[[], object]:
    import numpy as np

    main = migration.first("clearance.cli.__main__:main", "clearance.cli:main")
    torch.manual_seed(0)
    (folder / "net.py").write_text(NET)
    for name, seed in (("train", 0), ("test", 1)):
        draw = np.random.default_rng(seed)
        pixels, labels = draw.integers(0, 255, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
        np.savez(folder / f"{name}.npz", images=pixels, labels=labels)
    scope: dict[str, Any] = {}
    exec(NET, scope)
    torch.save(scope["small"]().state_dict(), folder / "w.pt")
    words = ["audit", f"{folder / 'net.py'}:small", "--weights", str(folder / "w.pt")]
    words += ["--train", f"npz:{folder / 'train.npz'}", "--test", f"npz:{folder / 'test.npz'}"]
    words += ["--out", str(folder / "out")]

    def call() -> None:
        sys.argv = ["clearance", *words]
        try:
            main(list(words))
        except SystemExit as ended:
            if ended.code:
                raise

    return call


def room_of(file: str) -> str:
    """The subpackage of a file; files at the top are one room."""
    return Path(file).parts[0] if os.sep in file else "(top)"


def calls(root: Path, *, every: bool = False) -> dict[str, Any]:
    """Files and rooms that three calls pass through."""
    imported = Path(importlib.import_module(PACKAGE).__file__ or "").parents[2]
    if imported != root:
        return {"calls": f"not made: {PACKAGE} is imported from {imported}"}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        makers: dict[str, Callable[[], Callable[[], object]]] = {
            "LargeMarginLoss at the input, made, called, backward": lambda: _loss_call("input"),
            "LargeMarginLoss at input and features, made, called, backward": lambda: _loss_call(
                "input", "features"
            ),
            "a robustness verdict": lambda: _robustness_call(nn.Flatten()),
            "a robustness verdict of a network that rounds": lambda: _robustness_call(_Rounded()),
            "audit MODULE:NAME": lambda: _outside_call(Path(place)),
        }
        for name, make in makers.items():
            try:
                with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    files = passed(make())
            except BaseException as error:  # SystemExit too; the other calls go on
                found[name] = f"failed: {type(error).__name__}: {error}"
                continue
            counts = Counter(sorted(map(room_of, files)))
            found[name] = (
                f"{len(files)} files, {len(counts)} rooms ({', '.join(f'{r} {n}' for r, n in counts.items())})"
            )
            if every or len(files) <= 40:
                found[name] += ": " + ", ".join(sorted(files))
    return found


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "size": size,
    "imports": imports,
    "public": public,
}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, nargs="?", default=HERE)
    parser.add_argument("--only", default=",".join([*PARTS, "calls"]))
    parser.add_argument("--files", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    root = given.root.resolve()
    for part in given.only.split(","):
        found = calls(root, every=given.files) if part == "calls" else PARTS[part](root)
        for name, value in found.items():
            print(f"- {name}: {value}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
