"""How Sphinx builds the site: its source is this repository, so that a page is the same file here and there.

``python -m sphinx -W --keep-going -c docs/site . build/site`` writes it; open ``build/site/index.html``.
"""

import hashlib
import os
import re
from importlib.metadata import version as version_of
from importlib.util import find_spec
from inspect import ismodule
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).parents[2]

project = "Clearance"
author = "The Clearance developers"
copyright = "The Clearance developers, Apache-2.0"  # noqa: A001
version = release = version_of("torch-clearance")

root_doc = "README"
include_patterns = [
    "*.md",
    "docs/**.md",
    "docs/**.rst",
    "benchmarks/README.md",
    "papers/*/README.md",
    "papers/**/results/**.md",
]
exclude_patterns = [".*", "build", "dist", "src", "tests", "**/node_modules"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
suppress_warnings = ["misc.highlighting_failure"]

# Pages
myst_heading_anchors = 4  # named as GitHub names them
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = "Clearance"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["index.html"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []
pygments_style, pygments_dark_style = "tango", "github-dark"

# Tutorials run when the site is built; the cache holds for as long as the library is the same.
os.environ.setdefault("OMP_NUM_THREADS", "1")
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DIGEST = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "tutorials" / DIGEST)
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "remove"  # progress bars

# API: public names only, in the order of the alphabet
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "imported-members": True}
autodoc_mock_imports = ["lightning", "transformers", "ray", "submitit"]  # not needed for API pages
default_role = "py:obj"  # a link where it is a public name, else code
napoleon_use_rtype = False
napoleon_custom_sections = ["Shapes"]
viewcode_line_numbers = True

NAVIGATION = {
    "Tutorials": [
        "docs/tutorials/audit_hugging_face",
        "docs/tutorials/foca_backbone",
        "docs/tutorials/noisy_labels",
        "docs/tutorials/rejecting_the_unknown",
        "docs/tutorials/gate_in_ci",
    ],
    "Audit a model": ["docs/your_model", "docs/severity", "docs/check", "docs/attacks"],
    "Train": [
        "docs/losses_and_loops",
        "docs/foca",
        "docs/large_margin",
        "docs/gaussian_mixture",
        "docs/trainers",
        "docs/compatibility",
        "docs/weight_decay",
        "docs/explore",
    ],
    "Reference": [
        "docs/command_line",
        "docs/api/index",
        "docs/scaling",
        "docs/how_it_works",
        "SECURITY",
        "docs/threat_model",
        "CHANGELOG",
    ],
    "Results": [
        "docs/results",
        "papers/all_against_all/README",
        "papers/sato_2019/README",
        "papers/elsayed_2018/README",
        "papers/wan_2018/README",
        "papers/tanay_2018/README",
        "benchmarks/README",
        "docs/beside_others",
    ],
    "Take part": ["CONTRIBUTING", "ARCHITECTURE", "docs/walks"],
}
"""The sidebar: captions, and the pages below each."""

NAMED = {page for pages in NAVIGATION.values() for page in pages}
NAVIGATION["Reference"] += sorted({f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md")} - NAMED)

TITLES = {
    "docs/check": "A gate for models",
    "papers/all_against_all/README": "All against all",
    "papers/sato_2019/README": "FOCA (Sato 2019)",
    "papers/elsayed_2018/README": "Large margins (Elsayed 2018)",
    "papers/wan_2018/README": "Gaussian mixtures (Wan 2018)",
    "papers/tanay_2018/README": "Weight decay (Tanay 2018)",
    "benchmarks/README": "Speed and memory",
    "docs/beside_others": "Clearance beside others",
    "ARCHITECTURE": "The map of the code",
    "SECURITY": "Security",
    "docs/gaussian_mixture": "Gaussian mixtures",
    "docs/large_margin": "Large margins",
}
"""Names of pages in the sidebar where their own title is too long for it."""


def toctree(pages: dict[str, str], caption: str = "") -> str:
    """A hidden table of contents, in Markdown."""
    options = [":hidden:", f":caption: {caption}"] if caption else [":hidden:"]
    lines = [f"{title} </{page}>" if title else f"/{page}" for page, title in pages.items()]
    return "\n".join(["", "```{toctree}", *options, "", *lines, "```", ""])


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """The sidebar's links, which the Markdown on GitHub does without."""
    if page == root_doc:
        for caption, pages in NAVIGATION.items():
            source[0] += toctree({each: TITLES.get(each, "") for each in pages}, caption)
    elif re.fullmatch(r"papers/\w+/README", page):
        results = (ROOT / page).parent / "results"
        found = sorted(results.rglob("*.md"))
        named = {path: path.relative_to(results).with_suffix("").parts for path in found}
        source[0] += toctree(
            {
                path.relative_to(ROOT).with_suffix("").as_posix(): ", ".join(
                    part.replace("-", " ") for part in parts if part != "ledger"
                )
                for path, parts in named.items()
            }
        )


def markdown_in_docstrings(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are reStructuredText, but with tables as in Markdown and with the bars of formulas."""
    out: list[str] = []
    rows: list[list[str]] = []
    example = False
    if what == "module" and not any(line.startswith("| ") for line in lines):
        names = [each for each in thing.__all__ if not ismodule(getattr(thing, each))]
        lines += ["", ", ".join(link(name, each) for each in names)]
    for line in [*lines, ""]:
        if line.startswith("| "):
            rows.append([cell.strip() for cell in line.rstrip()[1:-1].split(" | ")])
        elif not re.fullmatch(r"\|[-|]+\|", line):
            out += list_table(rows, name)
            rows = []
            example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
            out.append(line if example else BARS.sub(lambda found: found[1] or "\\" + found[0], line))
    lines[:] = out


BARS = re.compile(r"(`+[^`]+`+)|(?:[|]|(?<=[ (])[*](?=\w+[,; ]))")
"""Code, which stays as it is, and else what reStructuredText would take for markup."""


def list_table(rows: list[list[str]], module: str) -> list[str]:
    """A table in reStructuredText, whose first column links to the module's names; nothing of no rows."""
    out = [".. list-table::", "   :header-rows: 1", ""] if rows else []
    for number, (first, *others) in enumerate(rows):
        linked = link(module, first) if number and first.isidentifier() else first
        out += [f"   * - {linked}", *(f"     - {cell}" for cell in others)]
    return [*out, ""] if rows else []


def place(name: str) -> str | None:
    """The package that describes a name of the top package: itself, but for `fit`, which stands beside its result."""
    import clearance

    return ("clearance.training" if name == "fit" else "clearance") if name in clearance.__all__ else None


def link(module: str, name: str) -> str:
    """A name of a package, linked to where it is described."""
    return f":py:obj:`{name} <{place(name) or module}.{name}>`"


def only_once(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """A name that several packages export is described in one of them."""
    here = app.env.current_document.docname.removeprefix("docs/api/")
    where = place(name) if what == "module" else None
    return True if where is not None and where.removeprefix("clearance.") != here else None


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", markdown_in_docstrings)
    app.connect("autodoc-skip-member", only_once)
    if find_spec("transformers") is None:
        app.config.nb_execution_excludepatterns = ["docs/tutorials/audit_hugging_face.md"]
        logging.getLogger(__name__).warning(
            "transformers is not installed: its tutorial is shown without results. pip install -e '.[docs]'"
        )
