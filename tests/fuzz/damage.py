"""Damage to files and to trees of plain values, as Hypothesis strategies."""

import copy

from hypothesis import strategies as st

from odd_names import ODD

NUMBERS = (
    0,
    1,
    -1,
    2**31,
    2**63,
    -(2**64),
    10**400,
    0.0,
    -0.0,
    0.5,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
)
WORDS = (
    *ODD,
    "",
    "a",
    "inf",
    "none",
    "true",
    "../x",
    "/etc/passwd",
    "folder:",
    "npz:",
    "run:",
    "run:x",
    "9" * 400,
)


def plain_values(leaves=8):
    """Anything that JSON or YAML may hold, odd things more often than usual ones."""
    scalars = st.one_of(
        st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.integers(), st.text()
    )
    keys = st.one_of(st.sampled_from(WORDS), st.text(max_size=5))
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=leaves,
    )


@st.composite
def damaged_bytes(draw, content):
    """A file with a bit flipped, cut, emptied, zeroed in part, doubled or with bytes in between; None deletes it."""
    how = draw(
        st.sampled_from(("flip", "flip", "flip", "cut", "zero", "insert", "empty", "delete", "double"))
    )
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    if how == "delete":
        return None
    if how == "empty" or not content:
        return b""
    if how == "flip":
        return (
            content[:place] + bytes([content[place] ^ (1 << draw(st.integers(0, 7)))]) + content[place + 1 :]
        )
    if how == "cut":
        return content[:place]
    length = draw(st.integers(1, 64))
    if how == "zero":
        return content[:place] + bytes(len(content[place : place + length])) + content[place + length :]
    if how == "insert":
        return content[:place] + draw(st.binary(min_size=1, max_size=64)) + content[place:]
    return content + content[place:]


def places_in(tree, path=()):
    """The paths of all values in a tree."""
    yield path
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield from places_in(value, (*path, key))


@st.composite
def damaged_tree(draw, tree, at_most=3):
    """The tree with up to that many values replaced, deleted, repeated, or of another name."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, at_most))):
        *path, last = draw(st.sampled_from([place for place in places_in(tree) if place] or [(None,)]))
        if last is None:
            return draw(plain_values())
        parent = tree
        for key in path:
            parent = parent[key]
        how = draw(st.sampled_from(("replace", "replace", "replace", "delete", "repeat", "rename")))
        if how == "replace":
            parent[last] = draw(plain_values())
        elif how == "delete":
            del parent[last]
        elif how == "repeat" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(WORDS))] = parent.pop(last)
    return tree
