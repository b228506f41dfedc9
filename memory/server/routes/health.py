"""Whether the server lives, and whether it can answer."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The server runs."""

    status: Literal["ok"] = "ok"


@router.get("/health/live")
async def is_alive() -> Alive:
    """Answer as long as the server runs."""
    return Alive()
