"""OpenTelemetry spans of a manager's operations, if OpenTelemetry is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Describe = Callable[[str, int], None]
"""Sets a number on the current span."""
SCOPE = "memory.agents.manager"


@contextmanager
def span(operation: str, attributes: Mapping[str, str]) -> Iterator[Describe]:
    """Open a span for one operation, with the agent's attributes.

    It records names and counts, never texts. It always ends with the operation.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.trace import StatusCode
    except ImportError:
        yield lambda _, __: None
        return
    about: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "memory-tiers",
        **attributes,
    }
    with trace.get_tracer(SCOPE).start_as_current_span(
        operation, attributes=about, record_exception=False, set_status_on_exception=False
    ) as one:
        try:
            yield lambda name, count: one.set_attribute(name, count)
        except BaseException as error:
            one.set_attribute("error.type", type(error).__name__)
            one.set_status(StatusCode.ERROR)  # no message: it may contain user data
            raise
