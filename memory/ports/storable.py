"""What a store cannot hold though the port lets it through: a limit of its own."""

from __future__ import annotations


class Unstorable(ValueError):
    """A value that the store cannot hold; the message names it and the limit. A write
    with it is rejected, and its neighbours are not.
    """
