"""The `/mem` language: commands by which an agent or a chat reads and adds memory.

`parse` finds the commands in a text, `run` answers each over a `CommandContext`, and
`render` writes what an agent reads. `escape` keeps stored text from looking like a
frame or a command. This package knows neither a memory nor a store: the facade's
`memory.commands` provides the `CommandContext` for a memory.
"""

from __future__ import annotations

from memory.commands.command_context import CommandContext
from memory.commands.parse import Command, commands_in
from memory.commands.run import answer
from memory.domain.agent_results import Result

__all__ = ["Command", "CommandContext", "Result", "answer", "commands_in"]
