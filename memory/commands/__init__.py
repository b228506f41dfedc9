"""The `/mem` language: what an agent or a chat writes to read its memory and to add to
it, and what it is answered.

`parse` finds the commands of a text, `run` answers each over a `Reach`, `render` writes
what an agent reads, and `escape` keeps stored text from looking like a frame or a
command. Nothing here knows a memory or a store: the facade's noun, `memory.commands`,
has a memory answer a `Reach`.
"""

from __future__ import annotations

from memory.commands.command_context import Reach
from memory.commands.parse import Command, commands_in
from memory.commands.run import Result, answer

__all__ = ["Command", "Reach", "Result", "answer", "commands_in"]
