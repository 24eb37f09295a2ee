"""What the documents say is so: code runs, commands parse, links lead somewhere, the map names the rooms."""

import ast
import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import torch
import tyro
from torch.optim.optimizer import register_optimizer_step_pre_hook

from clearance.cli.__main__ import COMMANDS
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.recipe import read_recipe

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "clearance"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("papers/**/*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name, *languages):
    """The fenced blocks of a document that are tagged with one of these words."""
    text = (ROOT / name).read_text("utf-8")
    return [code for language, code in FENCE.findall(text) if language in languages]


def commands(name):
    """Every command line of Clearance in a document: in shell blocks, and in inline code that begins so."""
    text = (ROOT / name).read_text("utf-8")
    shown = [block.replace("\\\n", " ") for block in blocks(name, "sh", "bash", "console")]
    lines = [line for block in shown for line in block.splitlines()]
    found = [
        part
        for line in lines
        for part in re.findall(r"(?:^|[\s/&])(clearance (?:[a-z-][^&;|#]*)?)", f"{line} ")
    ]
    found += re.findall(r"`(clearance [a-z-][^`\n]*)`", FENCE.sub("", text))
    return [words for part in found if (words := shlex.split(part)[1:])]


@pytest.fixture
def steps_that_move():
    """Refuses a step of an optimizer that no loss gave a gradient to: it trains another network than is shown."""

    def check(optimizer, *_):
        groups = optimizer.param_groups
        assert any(p.grad is not None for group in groups for p in group["params"]), (
            "a step that moves nothing"
        )

    hook = register_optimizer_step_pre_hook(check)
    yield
    hook.remove()


def test_the_readme_is_one_of_the_documents():
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= set(NAMES)
    assert blocks("README.md", "python")
    assert commands("README.md")


LONG_BLOCKS = {"docs/losses_and_loops.md", "docs/scaling.md", "docs/trainers.md"}
OF_OTHER_PACKAGES = {"docs/scaling.md", "docs/trainers.md"}  # which warn


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow] * (name in LONG_BLOCKS)
            + [pytest.mark.filterwarnings("ignore")] * (name in OF_OTHER_PACKAGES),
        )
        for name in NAMES
        if blocks(name, "python")
    ],
)
@pytest.mark.usefixtures("steps_that_move", "quick_heads")
def test_python_blocks_run(name, tmp_path, monkeypatch, capsys):
    """All blocks of a document, in order, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace = {"__name__": "__document__"}
    left = set()
    for place, code in enumerate(blocks(name, "python")):
        used = re.findall(r"clearance\.integrations\.(\w+)", code)
        missing = {package for package in used if importlib.util.find_spec(package) is None}
        left |= missing
        if not missing:
            exec(compile(code, f"{name}, python block {place + 1}", "exec"), namespace)
    if left:
        pytest.skip(f"blocks for {', '.join(sorted(left))} did not run: not installed")


@pytest.mark.parametrize("name", [name for name in NAMES if blocks(name, "yaml")])
def test_recipes_can_be_read(name, tmp_path):
    for place, text in enumerate(blocks(name, "yaml")):
        (tmp_path / f"{place}.yaml").write_text(text)
        recipe = read_recipe(tmp_path / f"{place}.yaml")
        AuditPlan.of_recipe(recipe)


@pytest.mark.parametrize("name", NAMES)
def test_commands_parse(name):
    for words in commands(name):
        config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
        if words == ["--help"]:
            continue
        made = tyro.extras.subcommand_cli_from_dict(COMMANDS, args=words, config=config)
        assert type(made) is COMMANDS[words[0]]


@pytest.mark.parametrize(
    "option",
    sorted(set(re.findall(r"`(--[a-z-]+)", (ROOT / "docs" / "command_line.md").read_text("utf-8")))),
)
def test_options_of_the_command_line_exist(option):
    known = {
        f"--{name.replace('_', '-')}" for kind in COMMANDS.values() for name in kind.__dataclass_fields__
    }
    assert option in known


@pytest.mark.parametrize(("marker", "words"), [("run", ["clearance compare"]), ("test", ["pytest"])])
def test_the_readme_holds_the_two_commands(marker, words):
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.findall(rf"<!-- {marker} command -->\s*```\w*\n([^\n]+)\n```", text)
    assert len(found) == 1
    assert "pip install -c constraints.txt" in found[0]
    assert all(word in found[0] for word in words)


def anchors(path):
    """What headings can be linked to, as GitHub names them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    path = ROOT / name
    text = FENCE.sub("", path.read_text("utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"""(?:src|href)=["']([^"']+)""", text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), f"{name} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{name} links to {target}"


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/walks.md"])
def test_paths_in_code_exist(name):
    """Inline code such as `heads/scale.py` is a file of the package or of the repository."""
    text = FENCE.sub("", (ROOT / name).read_text("utf-8"))
    paths = re.findall(r"`([\w.-]+/[\w./-]*\.(?:py|toml|md|yaml))`?", text)
    assert paths
    for path in paths:
        assert (ROOT / path).exists() or (PACKAGE / path).exists(), f"{name} names {path}"


SOURCES = sorted(
    path for folder in ("src", "papers", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)
DOTTED = re.compile(r"(?<![\w./-])(?:cl|clearance|papers)(?:\.[A-Za-z_]\w*)+")


def missing(name):
    """The part of a dotted name that does not exist, or None."""
    first, *rest = name.removeprefix("~").split(".")
    found = importlib.import_module("clearance" if first == "cl" else first)
    for part in rest:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (AttributeError, ImportError):
                return part
        found = getattr(found, part)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_dotted_names_in_documents_exist(name):
    """Such as `cl.losses.Loss` and `clearance.linear.svm_path`."""
    inline = re.findall(r"`([^`\n]+)`", FENCE.sub("", (ROOT / name).read_text("utf-8")))
    named = {found for code in inline for found in DOTTED.findall(code)}
    assert [each for each in named if missing(each)] == []


def test_cross_references_in_docstrings_exist():
    """Such as :func:`clearance.load_dataset`."""
    named = {
        each
        for path in SOURCES
        for each in re.findall(r":\w+:`~?((?:clearance|papers)\.[\w.]+)`", path.read_text("utf-8"))
    }
    assert named
    assert [each for each in sorted(named) if missing(each)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_map_names_every_room(room):
    assert f"`{room}/`" in (ROOT / "ARCHITECTURE.md").read_text("utf-8")


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
)
def test_the_map_names_every_single_file(name):
    assert f"`{name}`" in (ROOT / "ARCHITECTURE.md").read_text("utf-8")


def test_the_map_names_nothing_that_is_not_there():
    drawn = re.findall(r"^\| \d \| (.+?) \|", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE)
    named = {word.rstrip("/") for cell in drawn for word in re.findall(r"`([\w/]+)`", cell)}
    assert named == {*ROOMS, *(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")}


def test_every_room_opens_with_what_it_is():
    for room in ROOMS:
        opening = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8")))
        assert opening, room


@pytest.mark.parametrize("name", NAMES)
def test_documents_name_no_folder_of_a_machine(name):
    text = (ROOT / name).read_text("utf-8")
    assert not re.findall(r"(?<![\w.])/(?:home|Users|root|tmp|work)/\S+", text)
