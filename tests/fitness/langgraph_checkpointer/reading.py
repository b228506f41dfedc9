"""How checkpoints are kept as documents, and how they are read.

Each thread is a range of keys, and so is each of its namespaces:

    c!THREAD!NAMESPACE!CHECKPOINT           a checkpoint with its smaller values
    c!THREAD!NAMESPACE!CHECKPOINT!TASK      the writes of a task after that checkpoint
    v!THREAD!NAMESPACE!CHANNEL!VERSION      a larger value of a channel
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    get_checkpoint_id,
    writes_sort_key,
)

from memory import Document, Memory, Scope


class CheckpointReader(BaseCheckpointSaver[str]):
    """Reads the checkpoints of LangGraph's threads in one scope of a memory."""

    def __init__(
        self, memory: Memory, *, scope: Scope | str = "object:langgraph:checkpoints", serde: Any = None
    ) -> None:
        super().__init__(serde=serde)
        self._memory: Any = memory
        self._scope = scope

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return one checkpoint, or the newest one of the thread and namespace."""
        if chosen := get_checkpoint_id(config):
            return await self._first(prefix_of("c", config) + part_of(chosen))
        async for _, newest in self._read(prefix=prefix_of("c", config), at_first=1):
            return newest
        return None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, the newest first.

        Args:
            config: The thread, and a namespace or checkpoint of it. None means all.
            filter: Values that the metadata must have.
            before: Only checkpoints older than this one.
            limit: At most this many.
        """
        prefix = prefix_of("c", config, all_namespaces=True)
        chosen = config and get_checkpoint_id(config)
        last = before and get_checkpoint_id(before)
        keys = {checkpoint_key(document.key) async for document in self._documents(prefix=prefix)}
        left = len(keys) if limit is None else limit
        for name, key in sorted(((key.split("!")[3], key) for key in keys), reverse=True):
            if left <= 0:
                return
            if (chosen and name != part_of(chosen)) or (last and name >= part_of(last)):
                continue
            found = await self._first(key)
            if found and all(found.metadata.get(path) == value for path, value in (filter or {}).items()):
                left -= 1
                yield found

    async def _documents(self, *, at_first: int = 1_000, **asked: Any) -> AsyncIterator[Document]:
        cursor, limit = None, at_first
        while True:
            page = await self._memory.documents.list(self._scope, limit=limit, cursor=cursor, **asked)
            if page.damaged:
                raise ValueError(f"{page.damaged} stored checkpoints are damaged. Run `memory doctor`")
            for found in page.documents:
                yield found
            if (cursor := page.cursor) is None:
                return
            limit = min(1_000, limit * 8)

    async def _read(self, **asked: Any) -> AsyncIterator[tuple[str, CheckpointTuple]]:
        """Yield checkpoints in the reverse order of keys: the writes after one come first."""
        writes: dict[str, Any] = {}
        async for found in self._documents(reverse=True, values=True, **asked):
            key = checkpoint_key(found.key)
            if found.key == key:
                yield key, await self._tuple(found, writes.get(key, []))
            else:
                writes = {key: [*writes.get(key, []), *ormsgpack.unpackb(found.value)]}

    async def _first(self, key: str) -> CheckpointTuple | None:
        async for _, found in self._read(start=key, stop=key + '"'):
            return found
        return None

    async def _tuple(self, stored: Document, writes: Sequence[Any]) -> CheckpointTuple:
        body, load = ormsgpack.unpackb(stored.value), self.serde.loads_typed
        thread, namespace, chosen, parent = body["address"]
        config, checkpoint = config_of(thread, namespace, chosen), load(body["checkpoint"])
        values = {channel: load(value) for channel, value in body["values"].items()}
        if body["larger"]:
            keys = value_keys(config, checkpoint)
            found = await self._memory.documents.get_many(
                self._scope, [keys[name] for name in body["larger"]]
            )
            values |= {
                name: load((one.metadata["form"], one.value))
                for name, one in zip(body["larger"], found, strict=True)
                if one is not None
            }
        ordered = sorted(writes, key=lambda row: writes_sort_key(row[2], row[0], row[1]))
        return CheckpointTuple(
            config,
            {**checkpoint, "channel_values": values},
            load(body["metadata"]),
            config_of(thread, namespace, parent) if parent else None,
            [(task, channel, load(value)) for task, _, _, channel, value in ordered],
        )


def config_of(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    named = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": named}


def address_of(config: RunnableConfig) -> tuple[str, str]:
    named = config["configurable"]
    return str(named["thread_id"]), named.get("checkpoint_ns") or ""


def prefix_of(kind: str, config: RunnableConfig | None, *, all_namespaces: bool = False) -> str:
    """Return how the keys begin: of a namespace, a thread, or all threads."""
    parts = list(address_of(config)) if config else []
    if config and all_namespaces and config["configurable"].get("checkpoint_ns") is None:
        del parts[1]
    return "!".join((kind, *map(part_of, parts), ""))


def checkpoint_key(key: str) -> str:
    """Return the key of the checkpoint, for its key or one of its writes."""
    return "!".join(key.split("!")[:4])


def value_keys(config: RunnableConfig, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the keys that larger values of the channels have."""
    prefix = prefix_of("v", config)
    versions = checkpoint["channel_versions"].items()
    return {name: f"{prefix}{part_of(name)}!{part_of(version)}" for name, version in versions}


def part_of(value: Any) -> str:
    """Return a part of a key: at most 120 bytes, without the separator."""
    part = quote(str(value), safe=":|-_.~@+=,")
    return part if len(part) <= 120 else "*" + hashlib.sha256(str(value).encode()).hexdigest()
