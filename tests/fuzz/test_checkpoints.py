"""Damaged and foreign checkpoints: all weights or none, and never those of a damaged file without a word."""

import io
import zipfile

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clearance.models import load_weights
from fuzz.damage import WORDS, damaged_bytes, plain_values
from fuzz.endings import MARK, cases, one_line

pytestmark = MARK


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def saved(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


STATE = net().state_dict()
FILES = {
    "a.safetensors": safetensors.torch.save(STATE),
    "a.pt": saved(STATE),
    "b.pth": saved({"epoch": 3, "state_dict": {f"module.{name}": value for name, value in STATE.items()}}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


def used(file, entry=None):
    """Loaded completely and finite, or refused and the module as before."""
    module = net(seed=1)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    loaded = False
    with one_line(file.name, "`entry`", "entry"):
        load_weights(module, file, entry)
        loaded = True
    after = module.state_dict()
    if not loaded:
        assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(bool(value.isfinite().all()) for value in after.values())


@cases(200)
@given(data=st.data())
def test_damaged_files(place, data):
    name = data.draw(st.sampled_from(sorted(FILES)))
    content = data.draw(damaged_bytes(FILES[name]))
    (place / name).unlink(missing_ok=True)
    if content is not None:
        (place / name).write_bytes(content)
    used(place / name)


SHAPES = st.lists(st.integers(0, 6), max_size=3)
DTYPES = st.sampled_from(
    (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
)
TENSORS = st.builds(lambda shape, kind: torch.zeros(shape, dtype=kind), SHAPES, DTYPES)
NAMES = st.sampled_from(
    (*STATE, *(f"module.{name}" for name in STATE), "model", "state_dict", "ema", *WORDS[:12])
)
VALUES = st.one_of(TENSORS, st.sampled_from(list(STATE.values())), plain_values(3))


@cases(200)
@given(
    content=st.one_of(
        st.dictionaries(NAMES, VALUES, max_size=8),
        st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=8), max_size=3),
        st.just(dict(STATE)).flatmap(lambda state: NAMES.map(lambda name: {**state, name: torch.zeros(2)})),
        VALUES,
    ),
    entry=st.one_of(st.none(), st.none(), NAMES),
)
def test_files_of_any_content(place, content, entry):
    (place / "odd.pt").write_bytes(saved(content))
    used(place / "odd.pt", entry)


def with_pickle(pickled):
    """A file of torch.save whose description of the content is replaced."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(FILES["a.pt"])) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
    return made.getvalue()


PACKAGES = ("posix", "os", "builtins", "subprocess", "torch", "collections", "argparse", "a.b", "", "é")
CLASSES = (
    "system",
    "exec",
    "Popen",
    "load",
    "OrderedDict",
    "Namespace",
    "dict",
    "x" * 600,
    "a b",
    "",
    "a\x00",
)


@cases(60)
@given(
    package=st.sampled_from(PACKAGES),
    name=st.sampled_from(CLASSES),
    rest=st.sampled_from(
        (b".", b")R.", b")\x81.", b")R}X\x01\x00\x00\x00aK\x01sb.", b"X\x01\x00\x00\x00a\x85R.")
    ),
)
def test_objects_of_any_class(place, package, name, rest):
    """Nothing of a class that a file names is run: as the whole content it holds no weights, whatever it is called."""
    call = b"\x80\x02c" + f"{package}\n{name}\n".encode() + rest
    (place / "odd.pt").write_bytes(with_pickle(call))
    with one_line("odd.pt"):
        load_weights(net(seed=1), place / "odd.pt")
        raise AssertionError("loaded")
