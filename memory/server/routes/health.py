"""Whether the server lives, and whether its stores answer."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from memory.facade.memory import Memory
from memory.server.callers import Caller
from memory.server.rendering import json_response
from memory.server.routing import ApiRoute

router = APIRouter(tags=["health"], route_class=ApiRoute)
OLDEST = 1.0
"""Seconds for which one look at the stores counts."""


class Alive(BaseModel):
    """The server runs."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Whether every store answers."""

    status: Literal["ok", "away"]
    away: list[str] = []


@router.get("/health/live", response_model=Alive)
async def is_alive() -> Response:
    """Answer as long as the server runs."""
    return json_response({"status": "ok"})


@router.get("/health/ready", response_model=Ready, responses={503: {"model": Ready}})
async def is_ready(request: Request) -> Response:
    """Answer 503 while a store is down. Only operators learn which.

    A store is also down if the key of the request could not be checked.
    """
    away = await request.app.state.readiness.away()
    is_ready = not away and not request.scope.get("keys_away")
    caller: Caller | None = request.scope.get("caller")
    named = away if caller is not None and caller.may("operator") else []
    return json_response(
        {"status": "ok" if is_ready else "away", "away": named},
        200 if is_ready else 503,
        headers=None if is_ready else {"Retry-After": "1"},
    )


class Readiness:
    """Looks after the stores, at most once in a while."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._looked = -OLDEST
        self._stores: dict[str, bool] = {}
        self._lock = asyncio.Lock()

    async def stores(self) -> dict[str, bool]:
        """Return whether each store answers, by its name."""
        async with self._lock:  # requests at once share one look
            if time.monotonic() > self._looked + OLDEST:
                self._stores = {one.store: one.ok for one in await self._memory.admin.check()}
                self._looked = time.monotonic()
            return self._stores

    async def away(self) -> list[str]:
        """Return the names of stores that do not answer."""
        return [name for name, answers in (await self.stores()).items() if not answers]
