"""Four papers, tried: from a checkout, ``python -m papers NAME``; no part of the installed library.

Each folder holds one paper: ``__init__.py`` (its title and its studies), ``claims.toml`` (every number and ordering
that it prints), ``recipes/``, one file for each dataset, ``results/`` (the ledgers that were written, with their
pictures) and a README. ``engine/`` is what they share. ``all_against_all/`` sets methods of several papers side by
side.

Studies stand on the public names of :mod:`clearance` and on :mod:`clearance.research`.
"""
