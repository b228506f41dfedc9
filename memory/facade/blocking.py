"""The blocking counterparts of the public async classes, and of objects they return.

Type checkers read `blocking.pyi` instead. `tools/blocking_stub.py` generates it from
the same classes.
"""

from __future__ import annotations

from memory.facade.admin import Admin
from memory.facade.artifacts import Artifacts
from memory.facade.commands import Commands
from memory.facade.entries import Entries
from memory.facade.holding import LegalHolds
from memory.facade.manager import MemoryManager, Recording, Tool
from memory.facade.memory import Memory
from memory.facade.numbers import ShortIds
from memory.facade.providers import (
    BufferProvider,
    CompositeProvider,
    SemanticProvider,
    SlidingWindowProvider,
    SummarizingProvider,
)
from memory.facade.relations import Relations
from memory.facade.runs import Runs
from memory.facade.scratchpads import Scratchpads
from memory.facade.session import Session
from memory.facade.sessions import Sessions
from memory.facade.streaming import MessageStream
from memory.facade.sync_wrapper import blocking_class
from memory.facade.tasks import Tasks
from memory.facade.view import ScopedMemory

BlockingMemory = blocking_class(Memory)
BlockingScopedMemory = blocking_class(ScopedMemory)
BlockingEntries = blocking_class(Entries)
BlockingRelations = blocking_class(Relations)
BlockingShortIds = blocking_class(ShortIds)
BlockingScratchpads = blocking_class(Scratchpads)
BlockingCommands = blocking_class(Commands)
BlockingArtifacts = blocking_class(Artifacts)
BlockingSession = blocking_class(Session)
BlockingSessions = blocking_class(Sessions)
BlockingTasks = blocking_class(Tasks)
BlockingRuns = blocking_class(Runs)
BlockingMessageStream = blocking_class(MessageStream)
BlockingAdmin = blocking_class(Admin)
BlockingLegalHolds = blocking_class(LegalHolds)
BlockingBufferProvider = blocking_class(BufferProvider)
BlockingSlidingWindowProvider = blocking_class(SlidingWindowProvider)
BlockingSummarizingProvider = blocking_class(SummarizingProvider)
BlockingSemanticProvider = blocking_class(SemanticProvider)
BlockingCompositeProvider = blocking_class(CompositeProvider)
BlockingMemoryManager = blocking_class(MemoryManager)
BlockingTool = blocking_class(Tool)
BlockingRecording = blocking_class(Recording)
