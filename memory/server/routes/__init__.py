"""The routes of the HTTP API, one module for each resource.

Each module has a `router`, which `ROUTERS` lists. A route takes its caller as `Reader`,
`Writer`, `Admin` or `Operator`.
"""

from __future__ import annotations

from memory.server.routes import (
    admin,
    artifacts,
    audit,
    commands,
    documents,
    entries,
    health,
    keys,
    listing,
    lookups,
    metrics,
    promotion,
    relations,
    scopes,
    scratchpads,
    sessions,
    tenants,
    transfer,
)

ROUTERS = (
    health.router,
    metrics.router,
    listing.router,
    lookups.router,
    entries.router,
    relations.router,
    artifacts.router,
    scratchpads.router,
    tenants.router,
    keys.router,
    audit.router,
    sessions.router,
    documents.router,
    scopes.router,
    promotion.router,
    commands.router,
    admin.router,
    transfer.router,
)
