"""Names that a folder, a method or a class may have, and that an output may take for something else."""

COLOURS = ("#a000ff", "#a00000", "#010203", "font-family: x; y")  # what pictures have as placeholders
MARKUP = (
    "[/x]",
    "[bold]a",
    ":bomb:",
    "<script>alert(1)</script>",
    "<!-- a",
    "--> b",
    "]]>",
    "&amp;",
    "</svg>",
)
FORMATS = (
    "$\\frac{1}{$",
    "a|b",
    "`code`",
    "*a*",
    "[x](y)",
    "=1+1",
    "{{ 7*7 }}",
    "%s %d",
    "NaN",
    "\\",
    "'a\"",
    "..",
)
LETTERS = ("x" * 300, "猫" * 80, "שלום", "é", "👩\u200d🔬")
UNSEEN = {
    "two\nlines": "two\\nlines",
    "\x1b[2J": "\\x1b[2J",
    "\u202egnp.exe": "\\u202egnp.exe",
    " ": "' '",
    "\u200b": "\\u200b",
    "\u3164": "'\\u3164'",
    "caf\udce9": "caf\\xe9",  # a byte that is not UTF-8, as Python reads it
}
"""Names of which something cannot be seen, and how they are shown."""

ODD = (*COLOURS, *MARKUP, *FORMATS, *LETTERS, *UNSEEN)


def shown(name):
    """What every output says for a name."""
    return UNSEEN.get(name, name)
