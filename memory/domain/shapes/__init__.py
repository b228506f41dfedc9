"""Convert messages to and from the formats of other libraries.

`import_message` takes one message: a dict in one of the `FORMATS`, an object of a
framework, `{role, content}`, or our own. `export_messages` returns messages in one of
the `FORMATS`; a message that came in that format is equal to what came.
`system_prompt` returns the system messages, which Anthropic takes as an argument of
their own. `export_langchain` makes LangChain's own objects. `memory.formats` exports
these functions.
"""

from memory.domain.shapes.anthropic import system_prompt
from memory.domain.shapes.exporter import (
    ExportedMessages,
    export_langchain,
    export_messages,
    export_originals,
)
from memory.domain.shapes.importer import import_groups, import_message, import_messages
from memory.domain.shapes.originals import forget_changed
from memory.domain.shapes.registry import FORMATS

__all__ = [
    "FORMATS",
    "ExportedMessages",
    "export_langchain",
    "export_messages",
    "export_originals",
    "forget_changed",
    "import_groups",
    "import_message",
    "import_messages",
    "system_prompt",
]
