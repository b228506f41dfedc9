"""Messages of any framework taken in as ours, and ours given back as any framework's.

`messages_of` takes one given message: a dict of OpenAI, Anthropic or LangChain, a
message object of LangChain, `{role, content}`, or our own. `given_as` gives messages in
one of the `SHAPES`; in the shape in which a message came it is equal to what came.
`system_of` gives what Anthropic wants apart: the system's text. `langchain_messages`
makes LangChain's own objects.
"""

from memory.domain.shapes.anthropic import system_of
from memory.domain.shapes.giving import SHAPES, given_as, langchain_messages
from memory.domain.shapes.taking import messages_of, messages_of_each

__all__ = ["SHAPES", "given_as", "langchain_messages", "messages_of", "messages_of_each", "system_of"]
