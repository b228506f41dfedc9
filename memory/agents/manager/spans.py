"""A span for each operation of a manager, by OpenTelemetry where that is installed
(E95).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Describe = Callable[[str, int], None]
"""Notes a number on the span under way."""
SCOPE = "memory.agents.manager"


@contextmanager
def span(operation: str, attributes: Mapping[str, str]) -> Iterator[Describe]:
    """One operation, with the agent's own attributes. Recorded are names and counts,
    never a text; the span ends however the operation does.
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
            one.set_status(StatusCode.ERROR)  # no message: it may name what a user said
            raise
