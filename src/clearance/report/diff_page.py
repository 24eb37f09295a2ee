"""The page on two models: what changed from the one to the other."""

from collections.abc import Mapping, Sequence
from importlib import resources

from clearance.report.audit_page import Finding, Section
from clearance.report.page import templates


def render_diff(
    title: str,
    found: Sequence[Finding],
    sections: Sequence[Section],
    *,
    dataset: str,
    commands: Mapping[str, str],
    versions: Mapping[str, str],
) -> str:
    """The page as text.

    `commands` made the two audits, by the model's name; `versions` are of the libraries of the newer audit.

    >>> "b against a" in render_diff("b against a", [], [], dataset="digits", commands={}, versions={})
    True
    """
    return (
        templates()
        .get_template("diff.html.j2")
        .render(
            title=title,
            found=found,
            sections_=sections,
            dataset=dataset,
            commands=list(commands.items()),
            versions=versions,
            style=resources.files("clearance.report").joinpath("page.css").read_text(encoding="utf-8"),
        )
    )
