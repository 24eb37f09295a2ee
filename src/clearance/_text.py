r"""Names are data: any text as one visible line, for every output.

A class may be called what a folder can be called: with a line break, letters that turn the direction of writing or
steer a terminal, bytes that are not UTF-8, or nothing that can be seen. Where such a name enters a report or is
printed, it passes `visible`. Each output then escapes what has a meaning in its own format: HTML by its templates, SVG
by matplotlib, Markdown by `records.markdown`, XML by ElementTree.
"""

import unicodedata

_STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, formats, half letters, ends of lines
_JOINERS = "\u200c\u200d"  # within words of Persian and Hindi, and within emoji
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters without ink


def as_text(name: object) -> str:
    """A name as text, also if it is kept as bytes.

    >>> as_text(b"cat"), as_text(3)
    ('cat', '3')
    """
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def visible(text: str) -> str:
    r"""`text` with an escape for each letter that cannot be seen; quoted if nothing of it can be seen.

    >>> visible("naïve café"), visible("a\nb\x1b[2J"), visible("\u202egnp.exe")
    ('naïve café', 'a\\nb\\x1b[2J', '\\u202egnp.exe')
    >>> visible("caf\udce9"), visible("\u200d"), visible(" "), visible("")
    ('caf\\xe9', "'\\u200d'", "' '", '')
    """
    if text.isprintable() and text.strip(" " + _BLANK):
        return text
    shown = "".join(_escaped(letter) if _steers(letter) else letter for letter in text)
    if not text or any(not (each.isspace() or each in _BLANK + _JOINERS) for each in shown):
        return shown
    return "'" + "".join(each if each == " " else _escaped(each) for each in shown) + "'"


def _steers(letter: str) -> bool:
    return unicodedata.category(letter) in _STEERING and letter not in _JOINERS


def _escaped(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is not UTF-8, as Python keeps it
        return f"\\x{code - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")
