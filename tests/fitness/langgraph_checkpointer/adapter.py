"""A LangGraph checkpointer that keeps checkpoints as documents of a memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)

from memory import ABSENT, DocumentPut, Filter, VersionConflict
from tests.fitness.halves import blocking
from tests.fitness.langgraph_checkpointer.reading import (
    CheckpointReader,
    address_of,
    checkpoint_key,
    config_of,
    part_of,
    prefix_of,
    value_keys,
)

INLINE_BYTES = 32 * 1024
"""The largest value that is stored with each checkpoint. A larger one is stored once."""


class DocumentSaver(CheckpointReader):
    """Keeps the checkpoints of LangGraph's threads in one scope of a memory.

        async with Memory("sqlite:///agent.db", loop="own") as memory:
            graph = builder.compile(checkpointer=DocumentSaver(memory))

    Args:
        memory: An open memory, made with `loop="own"`. Threads of two tenants with the
            same id are different threads.
        scope: The scope of the documents.
        serde: A serializer of LangGraph, such as an `EncryptedSerializer`.
    """

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return a version that no other branch of the thread has for the channel."""
        last = 0 if current is None else int(str(current).partition(".")[0])
        return f"{last + 1:032}.{secrets.token_hex(8)}"

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the larger values that are new since the last one."""
        thread, namespace = address_of(config)
        stored = checkpoint["channel_values"].keys() & checkpoint["channel_versions"].keys()
        values = {name: self.serde.dumps_typed(checkpoint["channel_values"][name]) for name in stored}
        larger = {name: values.pop(name) for name in stored if len(values[name][1]) > INLINE_BYTES}
        keys = value_keys(config, checkpoint)
        changes = [
            DocumentPut(self._scope, keys[name], value, {"form": form}, if_exists="keep")
            for name, (form, value) in larger.items()
            if name in new_versions
        ]
        serializable = get_serializable_checkpoint_metadata(config, metadata)
        body = {
            "address": (thread, namespace, checkpoint["id"], get_checkpoint_id(config)),
            "checkpoint": self.serde.dumps_typed({**checkpoint, "channel_values": {}}),
            "metadata": self.serde.dumps_typed(serializable),
            "values": values,
            "larger": list(larger),
        }
        await self._memory.documents.put_many(changes)
        key, value = prefix_of("c", config) + part_of(checkpoint["id"]), ormsgpack.packb(body)
        run = {"run_id": str(serializable["run_id"])} if serializable.get("run_id") else {}
        put = partial(self._memory.documents.put, self._scope, key, value, metadata=run)
        try:
            await put(expected_version=ABSENT)
        except VersionConflict:  # it is stored again
            await put()
        return config_of(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint. A repeat changes nothing.

        Errors, interrupts and answers to them replace earlier ones of the task.
        """
        key = f"{prefix_of('c', config)}{part_of(config['configurable']['checkpoint_id'])}!{part_of(task_id)}"
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
            await self._memory.documents.delete_many(self._scope, prefix=f"{kind}!{part_of(thread_id)}!")

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs.

        Raises:
            NotImplementedError: Other checkpoints of a thread stay that has a
                `DeltaChannel`, which is rebuilt from earlier ones.
        """
        if not (runs := set(run_ids)):
            return
        chosen = Filter.metadata("run_id").in_(sorted(runs))
        found_in = {one.key.split("!")[1] async for one in self._documents(prefix="c!", filter=chosen)}
        for thread in found_in:
            await self._discard(f"{thread}!", lambda _, found: str(found.metadata.get("run_id")) in runs)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete whole threads, or all but the newest checkpoint of each namespace.

        Raises:
            NotImplementedError: The strategy is `"keep_latest"`, and a thread has a
                `DeltaChannel`.
        """
        if isinstance(thread_ids, str) or strategy not in ("keep_latest", "delete"):
            raise ValueError("thread_ids must be a list, and strategy 'keep_latest' or 'delete'")
        seen: set[str] = set()

        def is_older(key: str, _: CheckpointTuple) -> bool:
            namespace = key.rpartition("!")[0]
            is_first = namespace not in seen
            seen.add(namespace)
            return not is_first

        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
            else:
                await self._discard(f"{part_of(thread)}!", is_older)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints, writes and values of a thread to another."""
        for kind in "vc":
            prefix = f"{kind}!{part_of(source_thread_id)}!"
            async for found in self._documents(prefix=prefix, values=True):
                value = found.value
                if kind == "c" and found.key == checkpoint_key(found.key):
                    body = ormsgpack.unpackb(value)
                    body["address"][0] = str(target_thread_id)
                    value = ormsgpack.packb(body)
                key = f"{kind}!{part_of(target_thread_id)}!{found.key.removeprefix(prefix)}"
                await self._memory.documents.put(self._scope, key, value, metadata=found.metadata)

    get_tuple = blocking(CheckpointReader.aget_tuple)
    list = blocking(CheckpointReader.alist)
    put = blocking(aput)
    put_writes = blocking(aput_writes)
    delete_thread = blocking(adelete_thread)
    delete_for_runs = blocking(adelete_for_runs)
    prune = blocking(aprune)
    copy_thread = blocking(acopy_thread)

    async def _discard(self, prefix: str, is_doomed: Callable[[str, CheckpointTuple], bool]) -> None:
        """Delete checkpoints, newest first, then larger values that none has any more."""
        values = [found.key async for found in self._documents(prefix=f"v!{prefix}")]
        doomed: list[str] = []
        used: set[str] = set()
        kept: set[str] = set()
        async for key, found in self._read(prefix=f"c!{prefix}"):
            if is_doomed(key, found):
                doomed.append(key)
                continue
            used.update(value_keys(found.config, found.checkpoint).values())
            if "counters_since_delta_snapshot" in found.metadata:
                kept.add(key.split("!")[1])
        if any(key.split("!")[1] in kept for key in doomed):
            raise NotImplementedError(
                "the thread has a DeltaChannel, rebuilt from earlier checkpoints: keep them"
            )
        for key in doomed:
            await self._memory.documents.delete_many(self._scope, start=key, stop=key + '"')
        for key in set(values) - used:
            await self._memory.documents.delete(self._scope, key)
