"""Convert messages to and from the formats of OpenAI, Anthropic and LangChain.

`context.to("openai")` does the same for what `session.context` returns.
"""

from memory.domain.shapes import (
    FORMATS,
    export_langchain,
    export_messages,
    import_message,
    import_messages,
    system_prompt,
)

__all__ = [
    "FORMATS",
    "export_langchain",
    "export_messages",
    "import_message",
    "import_messages",
    "system_prompt",
]
