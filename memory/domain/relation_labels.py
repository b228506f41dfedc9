"""The labels of relations between entries."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Label: TypeAlias = Literal["relates_to", "refines", "contradicts", "supersedes", "supports"]
LABELS: Final[tuple[Label, ...]] = get_args(Label)
SUPERSEDES: Final[Label] = "supersedes"
