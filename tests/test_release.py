"""What users install, and what they put into their own pipelines: a release, conda recipe, GitHub Action, hook."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

import clearance
from gate.reports import of_images

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


@pytest.fixture
def folders(tmp_path):
    """Audits of the same 400 images: the accepted one, one alike, and a worse one."""
    for name, count in (("audits/last", 20), ("alike", 21), ("worse", 60)):
        of_images((np.arange(400) < count).astype(int).tolist()).save(tmp_path / name)
    return tmp_path


def test_the_conda_recipe_needs_what_the_project_needs():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text("utf-8"))
    needed = dict(re.findall(r"^([\w-]+)(>=\S+)$", "\n".join(PROJECT["dependencies"]), re.MULTILINE))
    assert len(needed) == len(PROJECT["dependencies"])
    expected = {f"{CONDA_NAMES.get(name, name)} {bound}" for name, bound in needed.items()}
    expected.add(f"python {PROJECT['requires-python']}")
    assert set(recipe["requirements"]["run"]) == expected
    builds = {re.sub(r"(?=>=)", " ", each) for each in PYPROJECT["build-system"]["requires"]}
    assert set(recipe["requirements"]["host"]) == builds | {f"python {PROJECT['requires-python']}", "pip"}
    assert recipe["context"]["version"] == clearance.__version__
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    (command,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(command)]


def test_the_addresses_are_those_of_the_papers():
    cited = {each["identifiers"][0]["value"] for each in CITATION["references"]}
    assert set(PROJECT["urls"].values()) == {
        f"https://arxiv.org/abs/{one.removeprefix('arXiv:')}" for one in cited
    }


def test_a_release_has_the_addresses_of_the_repository_that_makes_it(tmp_path):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text("utf-8"))
    (step,) = (each for each in workflow["jobs"]["build"]["steps"] if "addresses" in each.get("name", ""))
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    at = {
        "GITHUB_SERVER_URL": "https://host.example",
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_REF_NAME": "v1.2.3",
    }
    subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, env=os.environ | at, check=True
    )
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert urls == PROJECT["urls"] | {
        "Homepage": "https://host.example/a/b",
        "Source": "https://host.example/a/b/tree/v1.2.3",
        "Documentation": "https://host.example/a/b/blob/v1.2.3/README.md#documentation",
        "Changelog": "https://host.example/a/b/blob/v1.2.3/CHANGELOG.md",
    }
    before, after = (
        re.findall(r"\]\(([^)]+)\)", (of / "README.md").read_text("utf-8")) for of in (ROOT, tmp_path)
    )
    pages = [
        f"https://host.example/a/b/{'raw' if each.endswith('.png') else 'blob'}/v1.2.3/{each}"
        for each in before
    ]
    assert len(after) > 20
    assert after == pages


def steps_of_the_action(folder, **given):
    """Run the action's steps as a runner does: inputs in the environment, and the files that it gives to steps."""
    inputs = {name: each.get("default") for name, each in ACTION["inputs"].items()} | {
        name.replace("_", "-"): value for name, value in given.items()
    }
    needed = {name for name, each in ACTION["inputs"].items() if each.get("required")}
    assert {name for name, value in inputs.items() if value is None} <= needed
    files = {name: folder / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    for step in ACTION["runs"]["steps"]:
        if step.get("if") == "inputs.install == 'true'" and inputs["install"] != "true":
            continue
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        env = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)
            for name, value in step.get("env", {}).items()
        }
        own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env=os.environ | env | {name: str(path) for name, path in files.items()} | {"PATH": own},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            break
    texts = {name: path.read_text("utf-8") if path.exists() else "" for name, path in files.items()}
    return done, texts


def test_the_action_passes_and_writes_its_table(folders):
    limits = "accuracy drops 1pt\n\n  error rises 2pt\n"
    done, texts = steps_of_the_action(
        folders, report="alike", against="audits/last", fail_if=limits, install="false", junit="check.xml"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("passed: ") == 2
    assert texts["GITHUB_OUTPUT"] == "status=0\n"
    assert texts["GITHUB_STEP_SUMMARY"].startswith("### clearance check: passed")
    assert (folders / "check.xml").exists()


def test_the_action_fails_where_the_model_got_worse(folders):
    done, texts = steps_of_the_action(
        folders, report="worse", against="audits/last", fail_if="accuracy drops 1pt", install="false"
    )
    assert done.returncode == 1
    assert texts["GITHUB_OUTPUT"] == "status=1\n"
    assert texts["GITHUB_STEP_SUMMARY"].startswith("### clearance check: failed")


def test_the_action_says_what_is_wrong_with_its_inputs_and_runs_none(folders):
    run_me = '"; touch ran; echo "$(touch ran)'
    done, texts = steps_of_the_action(
        folders, report="alike", against="audits/last", fail_if=run_me, install="false"
    )
    assert done.returncode == 2
    assert texts["GITHUB_OUTPUT"] == "status=2\n"
    assert done.stderr.strip()
    assert not (folders / "ran").exists()


@pytest.mark.parametrize(("newer", "status"), [("alike", 0), ("worse", 1)])
def test_the_hook_of_pre_commit_does_what_it_says(folders, newer, status):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (folders / newer).rename(folders / "audit")
    words = [*hook["entry"].split(), *hook["args"]]
    assert words[0] == "clearance"
    assert re.search(hook["files"], "audit/report.json")
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folders, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
