"""The routes of the HTTP API, one module for each resource.

Each module has a `router`, which `ROUTERS` lists. A route takes its caller as `Reader`,
`Writer`, `Admin` or `Operator`.
"""

from __future__ import annotations

from memory.server.routes import (
    artifacts,
    audit,
    entries,
    health,
    keys,
    listing,
    relations,
    scratchpads,
    tenants,
)

ROUTERS = (
    health.router,
    listing.router,
    entries.router,
    relations.router,
    artifacts.router,
    scratchpads.router,
    tenants.router,
    keys.router,
    audit.router,
)
