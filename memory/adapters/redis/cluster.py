"""Connections to a cluster: calls go to the node of their bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection

from memory.adapters.redis.connection import Connections
from memory.adapters.redis.keys import Address
from memory.adapters.redis.scripts import Argument, Call
from memory.ports.concurrency import each_at_once


class ClusterConnections(Connections):
    """Connections to a cluster.

    The calls of a bucket go to the node that has its slot. Buckets are served
    concurrently.
    """

    one_server = False

    async def open(self) -> None:
        self.runs.clear()
        nodes = [ClusterNode(host, port) for host, port in self.config.nodes]
        tls = {"ssl": True, **self._tls()} if self.config.tls else {}
        self._client = _Cluster(
            self._introduce,
            startup_nodes=nodes,
            max_connections=self.config.connections,
            **self._options(),
            **tls,
        )
        await self._in_time(self._client.initialize)

    async def leave(self) -> None:
        """Do nothing: the driver asks the cluster for its masters by itself."""

    async def servers(self, *command: str) -> list[Any]:
        nodes = self._live_client.get_primaries()
        return [
            await self._in_time(
                lambda node=node: self._live_client.execute_command(*command, target_nodes=[node])  # type: ignore[misc]
            )
            for node in nodes
        ]

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        for node in self._live_client.get_primaries():
            cursor = 0
            while True:
                scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", self.config.thresholds.keys_at_once)
                answer = await self._in_time(
                    lambda node=node, scan=scan: self._live_client.execute_command(*scan, target_nodes=[node])  # type: ignore[misc]
                )
                told, found = answer
                yield found
                cursor = int(next(iter(told.values())) if isinstance(told, Mapping) else told)
                if not cursor:
                    break

    async def values(self, addresses: Sequence[Address]) -> list[bytes | None]:
        keys = self._keys(addresses)
        found: list[bytes | None] = [None] * len(addresses)

        async def ask(numbers: list[int]) -> None:
            for number, value in zip(
                numbers, await self.command("MGET", *[keys[n] for n in numbers]), strict=True
            ):
                found[number] = value

        await each_at_once(
            ask(numbers) for numbers in _by_bucket([address.bucket for address in addresses]).values()
        )
        return found

    async def run(
        self, name: str, calls: Sequence[Call], options: Sequence[Argument], *, repeatable: bool
    ) -> list[bytes]:
        found: list[bytes] = [b""] * len(calls)

        async def ask(numbers: list[int]) -> None:
            answers = await self._evaluate(
                self._live_client, name, [calls[n] for n in numbers], options, repeatable
            )
            for number, answer in zip(numbers, answers, strict=True):
                found[number] = answer

        await each_at_once(ask(numbers) for numbers in _by_bucket([call.bucket for call in calls]).values())
        return found

    def _server(self, connection: AbstractConnection) -> str:
        return f"{getattr(connection, 'host', '')}:{getattr(connection, 'port', '')}"


class _Cluster(RedisCluster):
    """Driver's cluster client with a callback for new connections of its nodes.

    The driver has no argument for such a callback.
    """

    def __init__(self, introduce: Callable[[AbstractConnection], Awaitable[None]], **options: Any) -> None:
        super().__init__(**options)
        added = {"redis_connect_func": introduce}
        self.connection_kwargs.update(added)
        self.nodes_manager.connection_kwargs.update(added)
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_kwargs.update(added)


def _by_bucket(buckets: Sequence[str]) -> Mapping[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for number, bucket in enumerate(buckets):
        groups.setdefault(bucket, []).append(number)
    return groups
