"""The routes of the HTTP API, one module for each resource.

Each module has a `router`. Add it to `ROUTERS`, and a route takes its caller as
`Reader`, `Writer`, `Admin` or `Operator`.
"""

from __future__ import annotations

from memory.server.routes import audit, entries, health, keys

ROUTERS = (health.router, entries.router, keys.router, audit.router)
