"""The blocking twins of the public async classes, and of what these hand out.

What type checkers see of this module stands in `blocking.pyi`, which
`tools/blocking_stub.py` writes from the same classes.
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
from memory.facade.sync_wrapper import blocking
from memory.facade.tasks import Tasks
from memory.facade.view import ScopedMemory

BlockingMemory = blocking(Memory)
BlockingScopedMemory = blocking(ScopedMemory)
BlockingEntries = blocking(Entries)
BlockingRelations = blocking(Relations)
BlockingShortIds = blocking(ShortIds)
BlockingScratchpads = blocking(Scratchpads)
BlockingCommands = blocking(Commands)
BlockingArtifacts = blocking(Artifacts)
BlockingSession = blocking(Session)
BlockingSessions = blocking(Sessions)
BlockingTasks = blocking(Tasks)
BlockingRuns = blocking(Runs)
BlockingMessageStream = blocking(MessageStream)
BlockingAdmin = blocking(Admin)
BlockingLegalHolds = blocking(LegalHolds)
BlockingBufferProvider = blocking(BufferProvider)
BlockingSlidingWindowProvider = blocking(SlidingWindowProvider)
BlockingSummarizingProvider = blocking(SummarizingProvider)
BlockingSemanticProvider = blocking(SemanticProvider)
BlockingCompositeProvider = blocking(CompositeProvider)
BlockingMemoryManager = blocking(MemoryManager)
BlockingTool = blocking(Tool)
BlockingRecording = blocking(Recording)
