"""Recipes: everything that can change a number, as data."""

import dataclasses
import difflib
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from clearance._checks import check_choice, check_count, check_fraction, did_you_mean
from clearance.experiments.catalogue import audit_names
from clearance.experiments.method import Method, whole_as_floats

_SYNONYMS = {"learning_rate": "lr", "wd": "weight_decay", "decay": "weight_decay"}  # of other libraries


def _filled(kind: "type[Recipe | Method]", values: Mapping[str, Any], source: str) -> Any:
    """A recipe or method from plain values, each as its field wants it.

    `values` are by field; the message names `source` as the place that they come from.

    Raises:
        ValueError: If there is no such field, or a value is of another type.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            raise ValueError(f"{source}: {_advice(kind, key, list(fields))}")
    try:
        return kind(**{k: _typed(v, fields[k], k) for k, v in values.items()})
    except (TypeError, ValueError, OverflowError) as error:  # a float holds no number of 400 digits
        raise ValueError(f"{source}: {error}") from error


def _advice(kind: "type[Recipe | Method]", key: str, known: list[str]) -> str:
    """What is wrong with an unknown setting, and what to write instead."""
    meant = _SYNONYMS.get(key, key)
    if kind is Recipe and meant in {f.name for f in dataclasses.fields(Method)}:
        return f"{key!r} is not a setting of the recipe but of a method; write methods: {{plain: {{{meant}: ...}}}}."
    if kind is Method and meant in {f.name for f in dataclasses.fields(Recipe)}:
        return f"{key!r} is not a setting of a method but of the whole recipe; write it outside `methods`."
    hint = f" Did you mean {meant!r}?" if meant in known else did_you_mean(key, known)
    return f"no setting {key!r}; known are {', '.join(known)}.{hint}"


_KINDS = {
    bool: "true or false",
    int: "a whole number",
    str: "a word",
    tuple: "a list, as in [a, b]",
    dict: "a mapping",
}


def _example(setting: "dataclasses.Field[Any]") -> Any:
    """A value of the setting's type: its default, or for `float | None` and the like an empty one."""
    if setting.default is None:
        return next(kind for kind in typing.get_args(setting.type) if kind is not type(None))()
    made = setting.default_factory
    return setting.default if made is dataclasses.MISSING else made()


def _typed(value: Any, setting: "dataclasses.Field[Any]", name: str) -> Any:
    """A YAML value as the field wants it: lists become tuples, whole numbers floats where one is meant."""
    if value is None and setting.default is None:
        return None
    if isinstance(value, list):
        value = tuple(value)
    default = _example(setting)
    for kind, meant in _KINDS.items():
        if type(default) is kind and not isinstance(value, kind):
            raise ValueError(f"`{name}` must be {meant}; got {value!r}.")
    if isinstance(default, float):
        try:
            return float("true is no number" if isinstance(value, bool) else value)  # YAML reads 5e-4 as text
        except (TypeError, ValueError):
            raise ValueError(f"`{name}` must be a number; got {value!r}.") from None
    return value


@dataclass(frozen=True)
class Recipe:
    """A comparison: data, model, training budget, methods and audits.

    Args:
        dataset: A name in the catalogue, ``folder:PATH`` or ``npz:PATH``.
        root: Where the dataset's files are, if it needs any.
        size: Side in pixels to which an image folder is resized, or None.
        model: Name of the extractor in the catalogue, or ``run:PATH``: the network of a finished run, trained on.
        epochs: Passes over the training set, at least 1.
        steps: Total updates, instead of `epochs`; the same for few images as for all. None counts epochs.
        batch_size: Images per step, at least 1.
        schedule: ``"cosine"`` lowers the step size to 0 over the run; ``"tenths"`` divides it by ten after half and
            after three quarters of the run; ``"constant"`` does not change it.
        left_out: Numbers of the classes without training images; the audits `new_classes` and `likelihood` use them.
        label_noise: Share of training labels replaced by another class, in [0, 1); drawn once for each seed. Images
            that choices are based on have labels with the same noise; the test set never has noise.
        samples: Training images drawn for each seed, the same for all methods; None is all of them.
        balanced: Whether this draw has the same number of images of every class; otherwise it ignores classes.
        validation: Share of the training set, in [0, 1), that is not trained on but evaluated after every epoch.
        train_fraction: Share of the training set that is used, in (0, 1].
        held_out: Share of the training set, in [0, 1), that replaces the test set in every measurement, so that
            choices do not use the test set; the split has a fixed seed. 0 measures on the test set.
        augment_flip: Random horizontal flips in training.
        augment_pad: Pixels of zero padding before a random crop.
        augment_cutout: Side in pixels of a square set to 0 at a random place.
        autocast: Whether the extractor is trained in bfloat16; weak heads and audits stay in float32.
        compile_extractor: Whether torch.compile is used on the extractor while training.
        channels_last: Whether images and filters are stored with their channels last: the same numbers up to rounding.
            On a CPU, networks with several convolutions then train in two thirds to all of the time.
        seeds: How many seeds; they are 0, 1, 2 ...
        audits: Names of audits in the catalogue; ``"all"`` and ``"few-labels"`` stand for several.
        audit_settings: Settings of an audit that differ from its defaults, by audit and setting.
        methods: The methods to compare, by name; the others are compared with the first.
    """

    dataset: str = "digits"
    root: str | None = None
    size: int | None = None
    model: str = "small-cnn"
    epochs: int = 60
    steps: int | None = None
    batch_size: int = 64
    schedule: Literal["cosine", "tenths", "constant"] = "cosine"
    left_out: tuple[int, ...] = ()
    label_noise: float = 0.0
    samples: int | None = None
    balanced: bool = True
    validation: float = 0.0
    train_fraction: float = 1.0
    held_out: float = 0.0
    augment_flip: bool = False
    augment_pad: int = 0
    augment_cutout: int = 0
    autocast: bool = False
    compile_extractor: bool = False
    channels_last: bool = False
    seeds: int = 5
    audits: tuple[str, ...] = ("accuracy", "co_adaptation", "deeper_cut", "class_scatter")
    audit_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    methods: Mapping[str, Method] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "seeds"):
            check_count(name, getattr(self, name))
        check_choice("schedule", self.schedule, ("cosine", "tenths", "constant"))
        check_fraction("label_noise", self.label_noise, open_above=True)
        check_fraction("train_fraction", self.train_fraction, open_below=True)
        check_fraction("held_out", self.held_out, open_above=True)
        check_fraction("validation", self.validation, open_above=True)
        for name in ("augment_pad", "augment_cutout"):
            check_count(name, getattr(self, name), minimum=0)
        for number in self.left_out:
            check_count("left_out", number, minimum=0)
        if self.steps is not None:
            check_count("steps", self.steps)
        if self.samples is not None:
            check_count("samples", self.samples, minimum=2)
        for audit, given in self.audit_settings.items():
            if not isinstance(given, Mapping):
                raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
                    f"`audit_settings` must map each audit to its settings, as in 'accuracy: {{}}'; got {given!r} "
                    f"for {audit!r}."
                )
        whole_as_floats(self)
        object.__setattr__(self, "audits", audit_names(self.audits))


def to_tree(recipe: Recipe | Method) -> dict[str, Any]:
    """The recipe as plain dictionaries, lists and numbers: what YAML and JSON files hold."""
    tree: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(recipe)))
    return tree


def identifier(tree: Any) -> str:
    """Eight hexadecimal digits that change when anything in a tree of plain values changes."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:8]


def tuned_recipe(dataset: str) -> Recipe:
    """The recipe that was tuned for a dataset on a split of its training set.

    Digits and MNIST have their own; every other dataset gets MNIST's settings, untuned.
    """
    name = dataset if dataset in ("digits", "mnist") else "mnist"
    text = resources.files("clearance.experiments").joinpath(f"recipes/{name}.yaml").read_text("utf-8")
    return dataclasses.replace(from_tree(yaml.safe_load(text), f"recipes/{name}.yaml"), dataset=dataset)


def read_recipe(path: str | Path, dataset: str | None = None) -> Recipe:
    """A recipe from a YAML file; settings that it leaves out, of audits too, are those of the dataset's tuned recipe.

    A method may be a name of the catalogue (``plain: {}``), a change to one (``mine: {base: plain, lr: 0.1}``), or
    stand alone with ``base: none``. `dataset` replaces the file's.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not YAML of this form; the message names the key.
    """
    tree = _read_tree(path)
    if dataset is not None:
        tree["dataset"] = dataset
    start = tuned_recipe(str(tree.get("dataset", "digits")))
    given = tree.get("audit_settings")
    if isinstance(given, Mapping):
        changed = {
            audit: {**start.audit_settings.get(audit, {}), **own} if isinstance(own, Mapping) else own
            for audit, own in given.items()
        }
        tree["audit_settings"] = {**start.audit_settings, **changed}
    return from_tree({**vars(start), "methods": None, **tree}, str(path), start.methods)


def names_methods(path: str | Path) -> bool:
    """Whether a recipe's file names methods.

    Raises:
        FileNotFoundError, ValueError: As `read_recipe`.
    """
    return bool(_read_tree(path).get("methods"))


def _read_tree(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).read_text("utf-8")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _check_node(node)
        tree = None if node is None else loader.construct_document(node)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no recipe {path}; correct the path.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8; got other bytes.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} must be YAML; got: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ValueError(f"{path} must be nested at most {_DEEPEST} deep; got more. Correct it.") from error
    if not isinstance(tree, dict):
        raise ValueError(f"{path} must hold a mapping of settings; got {type(tree).__name__}.")  # noqa: TRY004
    return tree


_DEEPEST, _MOST_VALUES = 20, 10_000
_PLAIN = {
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map", "merge")
}


def _check_node(node: yaml.Node) -> None:
    """Raise ValueError for values that no recipe holds, before any of them is built.

    With aliases a small file can hold any number of values, so each use of one counts.
    """
    counts: dict[int, int] = {}
    open_nodes: set[int] = set()

    def count(one: yaml.Node, depth: int) -> int:
        if depth > _DEEPEST or id(one) in open_nodes:
            raise ValueError(f"values nested more than {_DEEPEST} deep{one.start_mark}")
        if one.tag not in _PLAIN:
            raise ValueError(
                f"a recipe holds text, numbers, true, false, null, lists and mappings; not {one.tag}{one.start_mark}"
            )
        if id(one) not in counts:
            open_nodes.add(id(one))
            counts[id(one)] = 1 + sum(count(inner, depth + 1) for inner in _inner(one))
            open_nodes.remove(id(one))
        if counts[id(one)] > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES:,} values, aliases counted{one.start_mark}")
        return counts[id(one)]

    count(node, 1)


def _inner(node: yaml.Node) -> list[yaml.Node]:
    """The nodes in a list or mapping; a mapping must have each key once."""
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if not isinstance(node, yaml.MappingNode):
        return []
    keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise ValueError(f"a mapping must have each key once; got {twice[0]!r} twice{node.start_mark}")
    return [each for pair in node.value for each in pair]


def from_tree(tree: Mapping[str, Any], source: str, known: Mapping[str, Method] | None = None) -> Recipe:
    """A recipe from plain values; `known` are the methods that ``base`` may name.

    Raises:
        ValueError: If a key is unknown or a value has the wrong type.
    """
    values = dict(tree)
    named = values.pop("methods", None) or dict(known or {})
    if not isinstance(named, Mapping):
        raise ValueError(  # noqa: TRY004
            f"{source}: `methods` must map names to settings, as in 'plain: {{}}'; got {named!r}."
        )
    methods = {
        str(name): _method(str(name), change or {}, source, known or {}) for name, change in named.items()
    }
    recipe: Recipe = _filled(Recipe, {**values, "methods": methods}, source)
    return recipe


def _method(name: str, change: Any, source: str, known: Mapping[str, Method]) -> Method:
    if isinstance(change, Method):
        return change
    if not isinstance(change, dict):
        raise ValueError(f"{source}: method {name!r} must be a mapping of settings; got {change!r}.")  # noqa: TRY004
    settings = dict(change)
    if name not in known and not {"base", "way"} & set(settings):  # else the settings are complete
        _check_meant(name, settings, known, source)
    base = settings.pop("base", name if name in known else "none")
    if base != "none":
        check_choice(f"{source}: base of method {name!r}", base, [*known, "none"])
        settings = {**dataclasses.asdict(known[base]), **settings}
    method: Method = _filled(Method, settings, f"{source}: method {name!r}")
    return method


def _check_meant(name: str, settings: Mapping[str, Any], known: Mapping[str, Method], source: str) -> None:
    """Refuse a name that looks like a misspelt method: it would be trained with default settings."""
    if known and not settings:
        check_choice(f"{source}: method", name, known)
    if near := difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75):
        raise ValueError(
            f"{source}: method {name!r} is nearly {near[0]!r}. Write that, or 'base: none' with its settings."
        )
