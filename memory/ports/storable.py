"""Values that the port accepts but one store cannot hold."""

from __future__ import annotations


class Unstorable(ValueError):
    """A value that the store cannot hold; the message names it and the limit.

    The write is rejected, and other writes of its call are not.
    """
