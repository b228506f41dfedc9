"""What the memory is to do and does not do yet: nobody does these things in a run of the model test
until it does. It is to be empty.
"""

from __future__ import annotations

NOT_YET: frozenset[str] = frozenset()
"""Some of "keyed write after deletion", "revive", "other overrides", "promote away
after an edit", "own moment", "conflict in a batch".
"""
