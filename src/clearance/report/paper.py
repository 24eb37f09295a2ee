"""What the page says about the paper whose figures it follows."""

PAPER = "Sato et al. (2019)"


def cited(what: str) -> str:
    """Where a reader of the paper has seen this before.

    >>> cited("Fig. 3")
    'Compare Fig. 3 of Sato et al. (2019).'
    """
    return f"Compare {what} of {PAPER}."
