"""Ranking: order the results of a search. Pure functions.

`score` scores a pool of candidates for a question, and `boosts` multiplies scores by
preferences. Both use numpy, and are imported from their own modules. `closeness` looks
at the places of words in the best texts. `fusion` merges rankings. `constants` has the
constants, each with its source.
"""

from memory.policies.ranking.fusion import fuse
from memory.policies.ranking.proximity import closeness

__all__ = ["closeness", "fuse"]
