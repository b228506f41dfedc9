"""The tenant in which the server keeps its keys and its audit log."""

from __future__ import annotations

from typing import Final

from memory.domain import validation
from memory.domain.errors import InvalidInput

RESERVED_TENANT: Final = "~server"
"""The tenant of the server's own documents. No caller can have it."""


def is_reserved(tenant: str) -> bool:
    """Return whether no caller may have this tenant."""
    return tenant.startswith("~")


def check_tenant(tenant: object) -> str:
    """Validate the name of a tenant that a caller may have.

    Raises:
        InvalidInput: It is no name, or is reserved.
    """
    checked = validation.identifier("tenant", tenant)
    if is_reserved(checked):
        raise InvalidInput("tenant", f"{checked[:80]!r} is reserved. Use a name that does not begin with '~'")
    return checked
