"""A LangGraph checkpointer that keeps checkpoints as documents of a memory.

Each thread is a range of keys, and so is each of its namespaces:

    c!THREAD!NAMESPACE!CHECKPOINT           a checkpoint with its smaller values
    c!THREAD!NAMESPACE!CHECKPOINT!TASK      the writes of a task after that checkpoint
    v!THREAD!NAMESPACE!CHANNEL!VERSION      a larger value of a channel
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import quote

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint import base

from memory import ABSENT, Document, DocumentPut, Filter, Memory, Scope, VersionConflict
from tests.fitness.halves import with_blocking_half

INLINE_BYTES = 32 * 1024
"""The largest value that is stored with each checkpoint. A larger one is stored once."""


@with_blocking_half
class DocumentSaver(base.BaseCheckpointSaver[str]):
    """Keeps the checkpoints of LangGraph's threads in one scope of a memory.

        async with Memory("sqlite:///agent.db", loop="own") as memory:
            graph = builder.compile(checkpointer=DocumentSaver(memory))

    Args:
        memory: An open memory, made with `loop="own"`. Threads of two tenants with the
            same id are different threads.
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
        return f"{int(str(current or 0).partition('.')[0]) + 1:032}.{secrets.token_hex(8)}"

    async def aget_tuple(self, config: RunnableConfig) -> base.CheckpointTuple | None:
        """Return one checkpoint, or the newest one of the thread and namespace."""
        chosen = base.get_checkpoint_id(config)
        key = prefix_of("c", config) + part_of(chosen or "")
        if chosen:
            return await self._first(start=key, stop=key + '"')
        return await self._first(prefix=key, at_first=1)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[base.CheckpointTuple]:
        """Yield checkpoints of a thread and namespace, or of all, the newest first."""
        prefix = prefix_of("c", config, all_namespaces=True)
        chosen, last = (part_of((one and base.get_checkpoint_id(one)) or "") for one in (config, before))
        keys = {checkpoint_key(document.key) async for document in self._documents(prefix=prefix)}
        for name, key in sorted(((key.split("!")[3], key) for key in keys), reverse=True):
            if limit == 0 or chosen not in ("", name) or (last and name >= last):
                continue
            found = await self._first(start=key, stop=key + '"')
            if found and all(found.metadata.get(path) == value for path, value in (filter or {}).items()):
                limit = None if limit is None else limit - 1
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: base.Checkpoint,
        metadata: base.CheckpointMetadata,
        new_versions: base.ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and before it the larger values that are new."""
        stored = checkpoint["channel_values"].keys() & checkpoint["channel_versions"].keys()
        values = {name: self.serde.dumps_typed(checkpoint["channel_values"][name]) for name in stored}
        larger = {name: values.pop(name) for name in stored if len(values[name][1]) > INLINE_BYTES}
        keys = value_keys(config, checkpoint)
        changes = [
            DocumentPut(self._scope, keys[name], value, {"form": form}, if_exists="keep")
            for name, (form, value) in larger.items()
            if name in new_versions
        ]
        await self._memory.documents.put_many(changes)
        bare = self.serde.dumps_typed({**checkpoint, "channel_values": {}})
        serializable = base.get_serializable_checkpoint_metadata(config, metadata)
        named, name = config["configurable"], checkpoint["id"]
        thread, namespace = str(named["thread_id"]), named.get("checkpoint_ns") or ""
        address = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": name}
        body = [address, base.get_checkpoint_id(config), bare, self.serde.dumps_typed(serializable)]
        value, run = ormsgpack.packb([*body, values, list(larger)]), {"run": str(serializable.get("run_id"))}
        put, key = self._memory.documents.put, prefix_of("c", config) + part_of(name)
        try:
            await put(self._scope, key, value, metadata=run, expected_version=ABSENT)
        except VersionConflict:  # it is stored again
            await put(self._scope, key, value, metadata=run)
        return {"configurable": address}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote. A repeat changes only errors, interrupts and answers."""
        new = {}
        for number, (channel, value) in enumerate(writes):
            place = base.WRITES_IDX_MAP.get(channel, number)
            new[place] = [task_id, place, task_path, channel, self.serde.dumps_typed(value)]

        def merge(found: Document | None) -> Any:
            stored = {row[1]: row for row in ormsgpack.unpackb(found.value)} if found else {}
            later = {place: row for place, row in new.items() if place < 0 or place not in stored}
            return ormsgpack.packb(list((stored | later).values()))

        key = f"{prefix_of('c', config)}{part_of(config['configurable']['checkpoint_id'])}!{part_of(task_id)}"
        await self._memory.documents.edit(self._scope, key, merge)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints, writes and values of a thread."""
        for kind in "cv":
            await self._memory.documents.delete_many(self._scope, prefix=f"{kind}!{part_of(thread_id)}!")

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs; see `aprune`."""
        chosen = Filter.metadata("run").in_([str(run) for run in run_ids])
        found_in = {one.key.split("!")[1] async for one in self._documents(prefix="c!", filter=chosen)}
        for thread in found_in:
            await self._discard(thread, lambda _, found: str(found.metadata.get("run_id")) in run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete whole threads, or all but the newest checkpoint of each namespace.

        Raises:
            NotImplementedError: A checkpoint stays that is rebuilt from earlier ones.
        """
        if isinstance(thread_ids, str) or strategy not in ("keep_latest", "delete"):
            raise ValueError("thread_ids must be a list, and strategy 'keep_latest' or 'delete'")
        newest: dict[str, str] = {}
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
            else:
                await self._discard(
                    part_of(thread), lambda key, _: newest.setdefault(key.rpartition("!")[0], key) != key
                )

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints, writes and values of a thread to another."""
        for kind in "vc":
            prefix = f"{kind}!{part_of(source_thread_id)}!"
            async for found in self._documents(prefix=prefix, values=True):
                key = f"{kind}!{part_of(target_thread_id)}!{found.key.removeprefix(prefix)}"
                value = found.value
                if kind == "c" and found.key == checkpoint_key(found.key):
                    address, *others = ormsgpack.unpackb(value)
                    value = ormsgpack.packb([{**address, "thread_id": str(target_thread_id)}, *others])
                await self._memory.documents.put(self._scope, key, value, metadata=found.metadata)

    async def _discard(self, thread: str, is_doomed: Callable[[str, base.CheckpointTuple], bool]) -> None:
        """Delete checkpoints, newest first, then larger values that none has any more."""
        unused = {found.key async for found in self._documents(prefix=f"v!{thread}!")}
        doomed, is_chain = list[str](), False
        async for key, found in self._read(prefix=f"c!{thread}!"):
            if is_doomed(key, found):
                doomed.append(key)
                continue
            unused -= set(value_keys(found.config, found.checkpoint).values())
            is_chain = is_chain or "counters_since_delta_snapshot" in found.metadata
        if doomed and is_chain:
            raise NotImplementedError("the thread has a DeltaChannel, rebuilt from earlier checkpoints")
        for key in doomed:
            await self._memory.documents.delete_many(self._scope, start=key, stop=key + '"')
        for key in unused:
            await self._memory.documents.delete(self._scope, key)

    def _documents(self, **asked: Any) -> AsyncIterator[Any]:
        return self._memory.documents.iterate(self._scope, skip_damaged=False, **asked)  # type: ignore[no-any-return]

    async def _read(self, **asked: Any) -> AsyncIterator[tuple[str, base.CheckpointTuple]]:
        """Yield checkpoints in the reverse order of keys: the writes after one come first."""
        writes: dict[str, list[Any]] = {}
        async for found in self._documents(reverse=True, values=True, **asked):
            key = checkpoint_key(found.key)
            if found.key == key:
                yield key, await self._tuple(found, writes.get(key, []))
            else:
                writes = {key: [*writes.get(key, []), *ormsgpack.unpackb(found.value)]}

    async def _first(self, **asked: Any) -> base.CheckpointTuple | None:
        async for _, found in self._read(**asked):
            return found
        return None

    async def _tuple(self, stored: Document, writes: Sequence[Any]) -> base.CheckpointTuple:
        load = self.serde.loads_typed
        address, parent, bare, metadata, values, larger = ormsgpack.unpackb(stored.value)
        config, checkpoint = {"configurable": address}, load(bare)
        values = {channel: load(value) for channel, value in values.items()}
        keys = value_keys(config, checkpoint)
        found = await self._memory.documents.get_many(self._scope, [keys[name] for name in larger])
        pairs = zip(larger, found, strict=True)
        values |= {name: load((one.metadata["form"], one.value)) for name, one in pairs if one}
        ordered = sorted(writes, key=lambda row: base.writes_sort_key(row[2], row[0], row[1]))
        return base.CheckpointTuple(
            config,
            {**checkpoint, "channel_values": values},
            load(metadata),
            {"configurable": {**address, "checkpoint_id": parent}} if parent else None,
            [(task, channel, load(value)) for task, _, _, channel, value in ordered],
        )


def prefix_of(kind: str, config: RunnableConfig | None, *, all_namespaces: bool = False) -> str:
    """Return how the keys begin: of a namespace, a thread, or all threads."""
    named = config["configurable"] if config else {}
    parts = [named["thread_id"], named.get("checkpoint_ns") or ""] if config else []
    if all_namespaces and named.get("checkpoint_ns") is None:
        parts = parts[:1]
    return "!".join((kind, *map(part_of, parts), ""))


def checkpoint_key(key: str) -> str:
    """Return the key of the checkpoint, for its key or one of its writes."""
    return "!".join(key.split("!")[:4])


def value_keys(config: RunnableConfig, checkpoint: base.Checkpoint) -> dict[str, str]:
    """Return the keys that larger values of the channels have."""
    prefix, versions = prefix_of("v", config), checkpoint["channel_versions"]
    return {name: f"{prefix}{part_of(name)}!{part_of(versions[name])}" for name in versions}


def part_of(value: Any) -> str:
    """Return a part of a key: at most 120 bytes, without the separator."""
    part = quote(str(value), safe=":|-_.~@+=,")
    return part if len(part) <= 120 else "*" + hashlib.sha256(str(value).encode()).hexdigest()
