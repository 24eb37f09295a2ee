"""A module from the place of its factory: ``package.module:name``, or ``path/to/file.py:name``."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from clearance._checks import check_choice

_FROM_FILES: dict[str, Path] = {}  # modules that have the name of their file
FORM = "MODULE:NAME (for example mypkg.net:build) or path/to/file.py:NAME"


def object_at(place: str) -> Any:
    """What has this name: a module, a class, a function; the working directory is searched first.

    Args:
        place: ``package.module:name`` or ``path/to/file.py:name``; the name may have dots.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the place is of another form, cannot be imported, or has no such name.

    Importing runs that code, as Python's own import does.

    >>> object_at("torch.nn:Flatten")
    <class 'torch.nn.modules.flatten.Flatten'>
    """
    where, separator, name = place.rpartition(":")
    if not separator or not where or not name:
        raise ValueError(f"a model must be given as {FORM}; got {place!r}.")
    with _first_on_path(Path.cwd()):
        return _attribute(_imported(where), name, place)


def folder_of(place: str) -> Path:
    """Where another process finds the code of a place: the folder of a file, else the working directory.

    >>> folder_of("torch.nn:Flatten") == Path.cwd()
    True
    """
    where = place.rpartition(":")[0]
    return Path(where).expanduser().resolve().parent if where.endswith(".py") else Path.cwd()


def module_of(found: Any, place: str) -> nn.Module:
    """The nn.Module that was found at a place, or that the class or function found there returns without arguments.

    Args:
        found: What :func:`object_at` returned.
        place: Where, for messages.

    Raises:
        ValueError: If it needs arguments, or gives anything but an nn.Module.

    >>> module_of(object_at("torch.nn:Flatten"), "torch.nn:Flatten")
    Flatten(start_dim=1, end_dim=-1)
    """
    with _first_on_path(folder_of(place)):
        made = found if isinstance(found, nn.Module) else _called(found, place)
    if not isinstance(made, nn.Module):
        raise ValueError(  # noqa: TRY004 - what a factory gives is no argument's type
            f"{place} must give a torch.nn.Module; got {type(made).__name__}. Return the network itself."
        )
    return made


def black_box_of(found: Any, place: str) -> Any:
    """What answers images: the nn.Module or function of one argument that was found, else what the one found returns.

    Args:
        found: What :func:`object_at` returned.
        place: Where, for messages.

    Raises:
        ValueError: If it needs several arguments.
    """
    if isinstance(found, nn.Module) or (inspect.isfunction(found) and len(_required(found)) == 1):
        return found
    with _first_on_path(folder_of(place)):
        return _called(found, place)


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """`folder` first on the path, as for a script in it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _imported(where: str) -> ModuleType:
    try:
        if where.endswith(".py"):
            return _from_file(Path(where).expanduser())
        importlib.invalidate_caches()
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
            raise ValueError(
                f"no module {where!r}, neither in the working directory nor installed; run the command where it can be "
                "imported, or give path/to/file.py:NAME."
            ) from error
        raise ValueError(f"{where} cannot be imported: it needs {error.name!r}; install that.") from error
    except (FileNotFoundError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise ValueError(
            f"{where} must be importable; it ended the program, as a script does that reads its arguments. Put what it "
            'does as a script under `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        raise ValueError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; correct the path of the model's code.")
    # its own name, by which other processes find it, unless something else has that
    name = path.stem if _may_have_its_name(path) else f"_clearance_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as Python code.")
    module = importlib.util.module_from_spec(spec)
    folder = path.resolve().parent
    for other, file in list(_FROM_FILES.items()):
        if file.parent != folder:  # else its neighbours would get the file of another folder under this name
            sys.modules.pop(other, None)
            del _FROM_FILES[other]
    if name == path.stem:
        _FROM_FILES[name] = path.resolve()
    sys.modules[name] = module  # dataclasses look up their module there
    with _first_on_path(path.resolve().parent):  # so that the file can import its neighbours
        spec.loader.exec_module(module)
    return module


def _may_have_its_name(path: Path) -> bool:
    if path.stem in sys.modules:
        return _FROM_FILES.get(path.stem) == path.resolve()  # read again
    if not path.stem.isidentifier():
        return False
    found = importlib.util.find_spec(path.stem)
    return found is None or found.origin == str(path.resolve())


def _attribute(found: Any, name: str, place: str) -> Any:
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each, value in vars(found).items() if _may_build(each, value)]
            check_choice(f"{place.rpartition(':')[0]}:NAME", part, known)
        found = getattr(found, part)
    return found


def _may_build(name: str, value: Any) -> bool:
    """Whether a message should suggest this name: not a private one, nor a module such as `nn`."""
    return not name.startswith("_") and not isinstance(value, ModuleType) and callable(value)


def _called(found: Any, place: str) -> Any:
    if not callable(found):
        raise ValueError(  # noqa: TRY004 - what a place holds is no argument's type
            f"{place} must be an nn.Module, or a class or function that gives one; got {type(found).__name__}."
        )
    needed = _required(found)
    if needed:
        raise ValueError(
            f"{place} must take no required argument; it needs {', '.join(map(repr, needed))}. Write a function that "
            f"calls it with them, and name that: def model(): return {place.rpartition(':')[2]}"
            f"({', '.join(f'{name}=...' for name in needed)}). A function of images that gives logits: --black-box."
        )
    try:
        return found()
    except Exception as error:
        raise ValueError(f"{place} fails with {type(error).__name__}: {error}") from error


def _required(found: Any) -> list[str]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # built in, without a signature: the call decides
        return []
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in fixed]
