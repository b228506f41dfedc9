"""Run the steps of the demo; each step returns its result as JSON.

`memory.cli.demo.rendering` displays them. Nothing here knows an answer: the file of
questions names the turns that hold the evidence, and each answer says whether the
search found them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memory.domain.entry import Entry
from memory.domain.promotion_report import KeptEntry, MovedEntry
from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.domain.versions import version_text
from memory.facade.memory import Memory
from memory.facade.transfer.lines import ImportOptions, MessageLine, read
from memory.ports.clock import system_clock
from memory.ports.text import query_words, words

SESSION = Scope.session("andorinha")
USER = Scope.user("ines")
TOP = 5
BATCH = 10


def asset(name: str) -> bytes:
    """Read a file of the bundled conversation."""
    return files("memory.cli.demo").joinpath(name).read_bytes()


def turns() -> list[MessageLine]:
    """Return the bundled conversation, checked as an import checks it."""
    found = list(read(io.BytesIO(asset("conversation.jsonl")), "conversation.jsonl", ImportOptions(SESSION)))
    return [item for item in found if isinstance(item, MessageLine)]


class Demo:
    """The main job of the demo, on an open memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._turn_of: dict[str, str] = {}  # entry id → the turn's own id
        self._conversation: list[Entry] = []

    async def remember(self, told: Callable[[int, int], None]) -> dict[str, Any]:
        """Write the conversation, as an import would, and the earlier knowledge."""
        started, drafts = version_text(micros(system_clock())), [message.draft for message in turns()]
        for start in range(0, len(drafts), BATCH):
            self._conversation += await self._memory.write_many(drafts[start : start + BATCH])
            told(len(self._conversation), len(drafts))
        self._turn_of = {
            entry.id: str(draft.key) for entry, draft in zip(self._conversation, drafts, strict=True)
        }
        new = sum(
            entry.version >= started for entry in self._conversation
        )  # versions are timestamps: older entries existed before
        known = [json.loads(line) for line in asset("knowledge.jsonl").splitlines()]
        self._known = await self._memory.write_many(known)
        return {
            "turns": len(drafts),
            "imported": new,
            "already_there": len(drafts) - new,
            "known_before": len(self._known),
        }

    def routes(self) -> list[dict[str, Any]]:
        """Return where each kind of record went, and why."""
        kinds: dict[tuple[str, str], list[Entry]] = {}
        for entry in (*self._conversation, *self._known):
            kinds.setdefault((entry.scope.text, entry.type.value), []).append(entry)
        rows = []
        for (scope, kind), entries in kinds.items():
            route = self._memory.admin.route(scope)
            row = {
                "scope": scope,
                "type": kind,
                "entries": len(entries),
                "tier": entries[0].tier,
                "store": route.store,
            }
            rows.append({**row, "replicas": list(route.replicas), "because": route.because[0]})
        return rows

    async def answers(self) -> list[dict[str, Any]]:
        """Answer every question."""
        return [await self.answer(**question) for question in json.loads(asset("questions.json"))]

    async def answer(self, question: str, evidence: list[str]) -> dict[str, Any]:
        """Return the best hits for a question, and the rank of its evidence."""
        found = await self._memory.search(
            question, scope=USER, include_narrower=True, session_id=SESSION.id, limit=TOP, explain=True
        )
        hits = []
        for place, hit in enumerate(found, start=1):
            turn = self._turn_of.get(hit.entry.id)
            ranks = {f"{mode}_rank": hit.explanation["ranks"][mode] for mode in ("lexical", "semantic")}
            text = hit.entry.content
            hits.append(
                {
                    "place": place,
                    "turn": turn,
                    "score": hit.score,
                    "relevance": hit.relevance,
                    **ranks,
                    "tier": hit.entry.tier,
                    "content": text,
                    "evidence": turn in evidence,
                }
            )
        places = [hit["place"] for hit in hits if hit["evidence"]]
        return {
            "question": question,
            "expected": evidence,
            "shared_words": self._shared_words(question, evidence),
            "found_at": places[0] if places else None,
            "hits": hits,
        }

    def _shared_words(self, question: str, evidence: list[str]) -> list[str]:
        """Return the stems that the question shares with the evidence.

        If there is none, only a search by meaning can find it.
        """
        said = {
            word
            for entry in self._conversation
            if self._turn_of[entry.id] in evidence
            for word in words(entry.content)
        }
        return [word for word in query_words(question) if word in said]

    async def end_session(self) -> dict[str, Any]:
        """End the session; return which rule moved which turn, and what stayed."""
        report = await self._memory.sessions.end(SESSION.id)
        said = {entry.id: entry.content for entry in self._conversation}

        def about(item: MovedEntry | KeptEntry) -> dict[str, Any]:
            return {
                **asdict(item),
                "turn": self._turn_of.get(item.entry_id),
                "content": said.get(item.entry_id),
            }

        return {
            "rules": [{"name": rule.name, "says": rule.describe()} for rule in self._memory.config.promotion],
            "moved": [about(item) for item in report.moved],
            "kept": [about(item) for item in report.kept],
        }

    async def tiers(self) -> dict[str, Any]:
        """Return the tiers with counts and sizes."""
        return (await self._memory.admin.stats()).to_dict()
