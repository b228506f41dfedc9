"""A LangGraph checkpointer that keeps checkpoints as documents of a memory.

Each thread is a range of keys, and so is each of its namespaces:

    c!THREAD!NAMESPACE!CHECKPOINT           a checkpoint with its smaller values
    c!THREAD!NAMESPACE!CHECKPOINT!TASK      the writes of a task after that checkpoint
    v!THREAD!NAMESPACE!CHANNEL!VERSION      a larger value of a channel
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any
from urllib.parse import quote

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
    writes_sort_key,
)

from memory import ABSENT, Document, DocumentDelete, DocumentPut, Memory, Scope, VersionConflict
from tests.fitness.halves import blocking

INLINE_BYTES = 32 * 1024
"""The largest value that is stored with each checkpoint. A larger one is stored once."""
GROUP = 100
"""The most changes of one group of documents."""


class DocumentSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of LangGraph's threads in one scope of a memory.

        async with Memory("sqlite:///agent.db", loop="own") as memory:
            graph = builder.compile(checkpointer=DocumentSaver(memory))

    Args:
        memory: An open memory, made with `loop="own"`. Threads of two tenants with the
            same id are different threads.
        scope: The scope of the documents.
        serde: A serializer of LangGraph, such as an `EncryptedSerializer`.
    """

    def __init__(
        self, memory: Memory, *, scope: Scope | str = "object:langgraph:checkpoints", serde: Any = None
    ) -> None:
        super().__init__(serde=serde)
        self._memory: Any = memory
        self._scope = scope

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return a version that no other branch of the thread has for the channel."""
        last = 0 if current is None else int(str(current).partition(".")[0])
        return f"{last + 1:032}.{secrets.token_hex(8)}"

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return one checkpoint, or the newest one of the thread and namespace."""
        if chosen := get_checkpoint_id(config):
            return await self._first(_prefix("c", config) + _part(chosen))
        async for _, newest in self._read(prefix=_prefix("c", config), at_first=1):
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
        prefix = _range(config)
        chosen = get_checkpoint_id(config) if config else None
        last = get_checkpoint_id(before) if before else None
        keys = {_key(document.key) async for document in self._documents(prefix=prefix)}
        left = len(keys) if limit is None else limit
        for key in sorted(keys, key=lambda key: key.split("!")[3], reverse=True):
            name = key.split("!")[3]
            if left <= 0:
                return
            if (chosen and name != _part(chosen)) or (last and name >= _part(last)):
                continue
            found = await self._first(key)
            if found and all(found.metadata.get(path) == value for path, value in (filter or {}).items()):
                left -= 1
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the larger values that are new since the last one."""
        thread, namespace = _address(config)
        values, larger, puts = {}, [], []
        for channel, value in checkpoint["channel_values"].items():
            if (version := checkpoint["channel_versions"].get(channel)) is None:
                continue
            form, data = self.serde.dumps_typed(value)
            if len(data) <= INLINE_BYTES:
                values[channel] = form, data
                continue
            larger.append(channel)
            if channel in new_versions:
                key = _value_key(_prefix("v", config), channel, version)
                puts.append(DocumentPut(self._scope, key, data, {"form": form}))
        body = {
            "address": (thread, namespace, checkpoint["id"], get_checkpoint_id(config)),
            "checkpoint": self.serde.dumps_typed({**checkpoint, "channel_values": {}}),
            "metadata": self.serde.dumps_typed(get_serializable_checkpoint_metadata(config, metadata)),
            "values": values,
            "larger": larger,
        }
        key = _prefix("c", config) + _part(checkpoint["id"])
        await self._apply([*puts, DocumentPut(self._scope, key, ormsgpack.packb(body))])
        return _config(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint. A repeat changes nothing.

        Errors, interrupts and answers to them replace earlier ones of the task.
        """
        key = f"{_prefix('c', config)}{_part(config['configurable']['checkpoint_id'])}!{_part(task_id)}"
        new = {
            WRITES_IDX_MAP.get(channel, place): (task_path, channel, self.serde.dumps_typed(value))
            for place, (channel, value) in enumerate(writes)
        }
        stored: dict[int, Any] = {}
        version: Any = ABSENT
        while True:
            merged = stored | {place: row for place, row in new.items() if place < 0 or place not in stored}
            rows = [(task_id, place, *row) for place, row in merged.items()]
            try:
                await self._memory.documents.put(
                    self._scope, key, ormsgpack.packb(rows), expected_version=version
                )
                return
            except VersionConflict:
                found = await self._memory.documents.get(self._scope, key)
            stored = {row[1]: tuple(row[2:]) for row in ormsgpack.unpackb(found.value)} if found else {}
            version = found.version if found else ABSENT

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints, writes and values of a thread."""
        for kind in "cv":
            await self._memory.documents.delete_many(self._scope, prefix=f"{kind}!{_part(thread_id)}!")

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs.

        Raises:
            ValueError: A `DeltaChannel` of a later checkpoint is rebuilt from them.
        """
        values, found = await self._survey("")
        kept = {key for key, one in found.items() if one.metadata.get("run_id") not in set(run_ids)}
        if needed := _ancestors(found, kept) - kept:
            run_id = found[min(needed)].metadata.get("run_id")
            raise ValueError(
                f"run_ids: {run_id!r} wrote what a DeltaChannel of a later checkpoint is rebuilt from."
                " Delete the later runs too, or the thread"
            )
        await self._keep(kept, found, values)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete whole threads, or all but the newest checkpoint of each namespace.

        Ancestors that a `DeltaChannel` of the newest one is rebuilt from stay.
        """
        if isinstance(thread_ids, str) or strategy not in ("keep_latest", "delete"):
            raise ValueError("thread_ids must be a list, and strategy 'keep_latest' or 'delete'")
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
                continue
            values, found = await self._survey(f"{_part(thread)}!")
            newest = {key.rpartition("!")[0]: key for key in sorted(found)}
            kept = set(newest.values())
            await self._keep(kept | _ancestors(found, kept), found, values)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints, writes and values of a thread to another."""
        for kind in "vc":
            prefix = f"{kind}!{_part(source_thread_id)}!"
            async for found in self._documents(prefix=prefix, values=True):
                value = found.value
                if kind == "c" and found.key == _key(found.key):
                    body = ormsgpack.unpackb(value)
                    body["address"][0] = str(target_thread_id)
                    value = ormsgpack.packb(body)
                key = f"{kind}!{_part(target_thread_id)}!{found.key.removeprefix(prefix)}"
                await self._memory.documents.put(self._scope, key, value, metadata=found.metadata)

    get_tuple = blocking(aget_tuple)
    list = blocking(alist)
    put = blocking(aput)
    put_writes = blocking(aput_writes)
    delete_thread = blocking(adelete_thread)
    delete_for_runs = blocking(adelete_for_runs)
    prune = blocking(aprune)
    copy_thread = blocking(acopy_thread)

    async def _documents(self, *, at_first: int = 1_000, **asked: Any) -> AsyncIterator[Document]:
        cursor, limit = None, at_first
        while True:
            page = await self._memory.documents.list(self._scope, limit=limit, cursor=cursor, **asked)
            for found in page.documents:
                yield found
            if (cursor := page.cursor) is None:
                return
            limit = min(1_000, limit * 8)

    async def _read(self, **asked: Any) -> AsyncIterator[tuple[str, CheckpointTuple]]:
        """Yield checkpoints in the reverse order of keys: the writes after one come first."""
        writes: dict[str, Any] = {}
        async for found in self._documents(reverse=True, values=True, **asked):
            key = _key(found.key)
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
        config, checkpoint = _config(thread, namespace, chosen), load(body["checkpoint"])
        values = {channel: load(value) for channel, value in body["values"].items()}
        if larger := body["larger"]:
            versions, prefix = checkpoint["channel_versions"], _prefix("v", config)
            keys = [_value_key(prefix, channel, versions[channel]) for channel in larger]
            for channel, blob in zip(
                larger, await self._memory.documents.get_many(self._scope, keys), strict=True
            ):
                if blob is not None:
                    values[channel] = load((blob.metadata["form"], blob.value))
        ordered = sorted(writes, key=lambda row: writes_sort_key(row[2], row[0], row[1]))
        return CheckpointTuple(
            config,
            {**checkpoint, "channel_values": values},
            load(body["metadata"]),
            _config(thread, namespace, parent) if parent else None,
            [(task, channel, load(value)) for task, _, _, channel, value in ordered],
        )

    async def _apply(self, changes: Sequence[DocumentPut | DocumentDelete]) -> None:
        """Make the changes. The last one is made together with others or after them."""
        if len(changes) == 1 and isinstance(changes[0], DocumentPut):
            put = changes[0]
            try:
                await self._memory.documents.put(put.scope, put.key, put.value, expected_version=ABSENT)
                return
            except VersionConflict:  # a checkpoint is stored again
                pass
        for first in range(0, len(changes), GROUP):
            await self._memory.documents.apply(changes[first : first + GROUP])

    async def _survey(self, prefix: str) -> tuple[Any, dict[str, CheckpointTuple]]:
        """Return the keys of larger values, then the checkpoints, without their values."""
        values = [found.key async for found in self._documents(prefix=f"v!{prefix}")]
        checkpoints = {}
        async for key, found in self._read(prefix=f"c!{prefix}"):
            channels = dict.fromkeys(found.checkpoint["channel_values"])
            checkpoints[key] = found._replace(
                checkpoint={**found.checkpoint, "channel_values": channels}, pending_writes=None
            )
        return values, checkpoints

    async def _keep(
        self, kept: Collection[str], found: dict[str, CheckpointTuple], values: Collection[str]
    ) -> None:
        """Delete the other checkpoints that were found, then the values that none has."""
        for key in found.keys() - kept:
            await self._memory.documents.delete_many(self._scope, start=key, stop=key + '"')
        used = {
            _value_key(_prefix("v", found[key].config), channel, version)
            for key in kept
            for channel, version in found[key].checkpoint["channel_versions"].items()
        }
        await self._apply([DocumentDelete(self._scope, key) for key in values if key not in used])


def _ancestors(found: dict[str, CheckpointTuple], kept: Collection[str]) -> set[str]:
    """Return the checkpoints that delta channels of the kept ones are rebuilt from."""
    needed: set[str] = set()
    for key in kept:
        one = found.get(key)
        missing = set(one.metadata.get("counters_since_delta_snapshot", ())) if one else set()
        while one and (missing := missing - one.checkpoint["channel_values"].keys()) and one.parent_config:
            above = _prefix("c", one.config) + _part(get_checkpoint_id(one.parent_config))
            one = found.get(above)
            needed |= {above} if one else set()
    return needed


def _address(config: RunnableConfig) -> tuple[str, str]:
    named = config["configurable"]
    return str(named["thread_id"]), named.get("checkpoint_ns") or ""


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def _prefix(kind: str, config: RunnableConfig) -> str:
    return "!".join((kind, *map(_part, _address(config)), ""))


def _range(config: RunnableConfig | None) -> str:
    """Return what the keys of the thread or of the namespace begin with."""
    if config is None:
        return "c!"
    if config["configurable"].get("checkpoint_ns") is None:
        return f"c!{_part(_address(config)[0])}!"
    return _prefix("c", config)


def _key(key: str) -> str:
    """Return the key of the checkpoint, for its key or one of its writes."""
    return "!".join(key.split("!")[:4])


def _value_key(prefix: str, channel: str, version: Any) -> str:
    return f"{prefix}{_part(channel)}!{_part(version)}"


def _part(value: Any) -> str:
    """Return a part of a key: at most 120 bytes, without the separator."""
    part = quote(str(value), safe=":|-_.~@+=,")
    return part if len(part) <= 120 else "*" + hashlib.sha256(str(value).encode()).hexdigest()
