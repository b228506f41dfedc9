"""Convert messages to and from the formats of other libraries.

`import_message` takes one message: a dict of OpenAI, Anthropic or LangChain, a message
object of LangChain, `{role, content}`, or our own. `export_messages` returns messages
in one of the `FORMATS`; a message that came in that format is equal to what came.
`system_prompt` returns the system messages, which Anthropic takes as an argument of
their own. `export_langchain` makes LangChain's own objects. `memory.formats` exports
these functions.
"""

from memory.domain.shapes.anthropic import system_prompt
from memory.domain.shapes.exporter import FORMATS, export_langchain, export_messages
from memory.domain.shapes.importer import import_message, import_messages

__all__ = [
    "FORMATS",
    "export_langchain",
    "export_messages",
    "import_message",
    "import_messages",
    "system_prompt",
]
