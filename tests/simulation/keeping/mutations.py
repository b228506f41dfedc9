"""Mutations in documents that a run must notice, by the name of what goes wrong then."""

from __future__ import annotations

from memory.orchestrator.documents import chunks, documents
from tests.support.mutations import Mutation

MUTATIONS: dict[str, Mutation] = {
    "a-version-that-is-not-the-expected-one-is-replaced": Mutation(
        documents, "_check", "if asked.expected is not None and ", "if False and "
    ),
    "who-is-overtaken-writes-over-the-other": Mutation(
        documents,
        "Documents._put",
        "AtVersion(stored.version) if isinstance(stored, Record | Tombstone) else Absent()",
        "Newer()",
    ),
    "a-group-is-kept-in-part": Mutation(
        documents, "Documents._together", ", together=True", ", together=False"
    ),
    "a-put-whose-answer-was-lost-is-refused": Mutation(
        documents, "_own", "if isinstance(stored, Record) and stored.body.get(NONCE) == nonce", "if False"
    ),
    "chunks-of-an-earlier-value-stay": Mutation(
        documents, "Documents._put", "drop_step(stored) if isinstance(stored, Record) else ()", "()"
    ),
    "chunks-of-a-deleted-value-stay": Mutation(documents, "Documents._delete", "drop_step(there))", "())"),
    "a-deletion-takes-chunks-of-a-put-under-way": Mutation(
        documents, "Documents._delete", "drop_step(there))", "_OF_CHUNKS)"
    ),
    "chunks-of-a-refused-put-stay-for-good": Mutation(
        chunks,
        "Chunks.store",
        "owed=(PendingStep(LOOK_FOR_DOCUMENT, LOOK_FOR_DOCUMENT),),",
        "owed=(),",
    ),
    "chunks-go-though-their-document-stands": Mutation(
        chunks,
        "Chunks._look_for_document",
        'isinstance(there, Record) and there.fields.get("upload") == upload',
        "False",
    ),
    "deleted-chunks-are-not-stored-again": Mutation(
        chunks, "Chunks.confirm", "if not outcome.applied:", "if False:"
    ),
    "a-document-outlives-the-erasure-of-its-chunks": Mutation(
        documents, "Documents._put", "None if upload is None else upload.generation", "None"
    ),
}
