"""Options that may be left out: the help then shows what is taken instead in their own words, not "None"."""

from pathlib import Path
from typing import Annotated

import tyro

OptionalText = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
OptionalCount = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
OptionalNumber = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
