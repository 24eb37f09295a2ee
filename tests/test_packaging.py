"""The files that an install and a check start from agree with one another."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
MARK = "<!-- test command -->"


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def the_one(pattern, text):
    """What the only match of `pattern` in `text` holds in its brackets."""
    (found,) = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    return found


def written_test_command():
    """The fenced block that follows the mark, as the checks take it."""
    return the_one(rf"^{MARK}\n```\w*\n(.*?)^```", README)


def test_the_upper_bound_on_torch_stands_in_the_constraints_alone():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    (bound,) = [line for line in lines if line.startswith("torch")]
    (asked,) = [need for need in project()["dependencies"] if need.startswith("torch")]
    assert re.fullmatch(r"torch>=[\d.]+,<[\d.]+", bound)
    assert asked == bound.split(",")[0]


def test_no_dependency_has_an_upper_bound_in_the_project():
    extras = project()["optional-dependencies"].values()
    needs = [need for group in (project()["dependencies"], *extras) for need in group]
    assert len(needs) > 10
    assert [need for need in needs if "<" in need or "==" in need] == []


def test_the_checks_run_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert f"/{MARK}/" in script
    assert "pytest" in written_test_command()
    # the checks that follow need the environment that this command makes
    python = the_one(r'^python="([^"]+)"$', script)
    environment = python.split("/")[0]
    assert f"-m venv {environment} " in written_test_command()
    assert f"{python} -m pytest" in written_test_command()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_install_from_the_checkout_takes_the_constraints(name):
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n`]*)", text)
    ours = [words for words in installs if re.search(r"(^|\s)['\"]?\.(\[|['\"\s]|$)", words)]
    assert ours
    assert [words for words in ours if "-c constraints.txt" not in words] == []
