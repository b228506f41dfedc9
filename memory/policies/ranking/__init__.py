"""Ranking: what was found becomes one order. Pure functions: what comes out is told by
what goes in.

`score` measures a pool of candidates against a question, `boosts` multiplies what the
caller or the question prefers: both calculate with numpy, and are imported from their
own modules. `closeness` looks at where words stand in the best texts; `fusion` merges
whole rankings. Constants, each with its source, are in `constants`.
"""

from memory.policies.ranking.fusion import fuse
from memory.policies.ranking.proximity import closeness

__all__ = ["closeness", "fuse"]
