"""The blocking counterparts of the public async classes, and of objects they return.

Type checkers read `blocking.pyi` instead. `tools/blocking_stub.py` generates it from
the same classes.
"""

from __future__ import annotations

from memory.agents.manager import MemoryManager, Recording, Tool
from memory.agents.providers import (
    BufferProvider,
    CompositeProvider,
    SemanticProvider,
    SlidingWindowProvider,
    SummarizingProvider,
)
from memory.facade.memory import Memory
from memory.facade.resources.admin import Admin
from memory.facade.resources.artifacts import Artifacts
from memory.facade.resources.commands import Commands
from memory.facade.resources.documents import Documents
from memory.facade.resources.entries import Entries
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.resources.message_stream import MessageStream
from memory.facade.resources.relations import Relations
from memory.facade.resources.runs import Runs
from memory.facade.resources.scopes import ScopeListing
from memory.facade.resources.scratchpads import Scratchpads
from memory.facade.resources.session import Session
from memory.facade.resources.sessions import Sessions
from memory.facade.resources.short_ids import ShortIds
from memory.facade.resources.tasks import Tasks
from memory.facade.scoped import ScopedMemory
from memory.sync.wrapper import blocking_class

BlockingMemory = blocking_class(Memory)
BlockingScopedMemory = blocking_class(ScopedMemory)
BlockingEntries = blocking_class(Entries)
BlockingRelations = blocking_class(Relations)
BlockingShortIds = blocking_class(ShortIds)
BlockingScopeListing = blocking_class(ScopeListing)
BlockingScratchpads = blocking_class(Scratchpads)
BlockingDocuments = blocking_class(Documents)
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
