"""Convert messages to and from the formats of model makers and frameworks.

`context.to("openai")` does the same for what `session.context` returns.
"""

from memory.domain.shapes import (
    FORMATS,
    ExportedMessages,
    export_langchain,
    export_messages,
    import_message,
    import_messages,
    system_prompt,
)

__all__ = [
    "FORMATS",
    "ExportedMessages",
    "export_langchain",
    "export_messages",
    "import_message",
    "import_messages",
    "system_prompt",
]
