"""The word index of a collection: the records with each word, and its counts there.

Records that are indexed together form a segment. They are the new ones of one call,
waiting ones that were indexed together, or changed ones.

The postings of a segment are in a few hundred buckets, and those of a word in one. So a
bulk write stores about one bucket per record, not one row per word. For one word, a
search reads one bucket of each segment.

A record's row names the segment of its words. The transaction that changes or deletes
the record removes its words from there. It always locks rows of records before buckets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Some
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.thresholds import Thresholds
from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.several import in_list, packets, pad_to_power_of_two, portions
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively

BUCKETS = 512
ROWS = 64
"""The number of rows after which other tasks get a turn."""
_POSTING = 4
"""Integers of 64 bits: the word's digest, the record's number, the word's packed counts
in its parts, and the number of all its words.
"""
_WORD, _NUMBER, _COUNTS, _LENGTH = range(_POSTING)
_SIZE = _POSTING * 8

Send: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[None]]
Postings: TypeAlias = npt.NDArray[np.int64]
Digests: TypeAlias = Mapping[int, int]
"""Packed counts by the digest of the word."""
_Row: TypeAlias = tuple[int, int, int, int, bytes]


class IndexedRow(NamedTuple):
    """A record as it is indexed."""

    number: int
    partition: int
    words: bytes
    """In the packed form of `memory.ports.lexical`."""


class WordTable:
    """The statements about one collection's words.

    `packet` is the largest statement that the server takes, in bytes.
    """

    def __init__(
        self, collection: Collection, names: TableNames, packet: int, thresholds: Thresholds
    ) -> None:
        table = f"`{names.words(collection.name)}`"
        self._room = packet // 2
        self._thresholds = thresholds
        self._store = f"INSERT INTO {table} (partition_no, bucket, segment, part, postings) VALUES "  # noqa: S608
        self._over = " ON DUPLICATE KEY UPDATE postings = VALUES(postings)"
        self._records = f"SELECT number, partition_no, lexemes, words FROM `{names.table(collection.name)}` WHERE lexemes > 0 AND number IN "  # noqa: S608
        buckets = "partition_no = ? AND segment = ? AND bucket IN {0}"
        order = "ORDER BY bucket, part FOR UPDATE"
        self._locked = (
            f"SELECT bucket, part, postings FROM {table} FORCE INDEX (PRIMARY) WHERE {buckets} {order}"  # noqa: S608
        )
        self._remove = f"DELETE FROM {table} WHERE {buckets} AND part = ?"  # noqa: S608
        self._segment = f"SELECT DISTINCT partition_no FROM {table} WHERE segment = ?"  # noqa: S608
        self._read = f"SELECT postings FROM {table} FORCE INDEX (PRIMARY) WHERE partition_no = ? AND segment = ? AND bucket IN "  # noqa: S608
        self._page = (
            f"SELECT partition_no, bucket, segment, part, postings FROM {table} WHERE partition_no >= ? AND (partition_no, bucket, segment, part) > "  # noqa: S608
            "(?, ?, ?, ?) ORDER BY partition_no, bucket, segment, part LIMIT ?"
        )
        self._find = f"SELECT bucket, postings FROM {table} WHERE partition_no IN {{0}} AND bucket IN {{1}}"  # noqa: S608

    # -- adding ------------------------------------------------------------------------

    async def add(self, send: Send, segment: int, records: Iterable[IndexedRow]) -> None:
        """Index the words of at most `thresholds.segment` records as a new segment.

        No other segment may have its number.
        """
        by_partition: dict[int, list[IndexedRow]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        rows = [
            row
            for partition, some in sorted(by_partition.items())
            for row in _buckets(partition, segment, some, self._thresholds.postings)
        ]
        await self._put(send, rows)

    async def _put(self, send: Send, rows: Sequence[_Row]) -> None:
        """Store rows, and replace existing ones."""
        for some in packets(
            rows,
            self._thresholds.word_rows_at_once,
            self._room,
            max([60 + len(row[-1]) for row in rows], default=1),
            fill=True,
        ):
            sql = f"{self._store}{', '.join(['(?, ?, ?, ?, ?)'] * len(some))}{self._over}"
            await send(sql, [value for row in some for value in row])

    # -- taking out --------------------------------------------------------------------

    async def forget(self, connection: Connection, numbers: Sequence[int], was: int | None = None) -> None:
        """Remove the words of these records, whose rows are locked.

        Call it while the rows are still as they were indexed. The words are taken from
        the rows. If others were indexed, it searches all buckets of the partition in
        their segment. If none of a record's words are there, it searches the whole
        segment. `was` is the partition of records whose rows no longer name one.
        """
        told: dict[tuple[int, int], dict[int, Digests]] = {}
        lost: dict[int, set[int]] = {}
        for some in portions(sorted(numbers), self._thresholds.listed):
            wanted = pad_to_power_of_two(some)
            async for number, partition, segment, words in iterate_cooperatively(
                await connection.fetch(f"{self._records}{in_list(len(wanted))}", *wanted), ROWS
            ):
                at = was if partition is None else partition
                if at is None:
                    lost.setdefault(segment, set()).add(number)
                else:
                    told.setdefault((segment, at), {})[number] = self._row_digests(words)
        for (segment, at), records in sorted(told.items()):
            if missing := records.keys() - await self._take_all_out(connection, segment, at, records):
                lost.setdefault(segment, set()).update(missing)
        for segment, these in sorted(lost.items()):
            for (partition,) in await connection.fetch(self._segment, segment):
                await self._take_out(connection, segment, partition, range(BUCKETS), these)

    def _row_digests(self, words: bytes | None) -> Digests:
        """Return the words in a record's row.

        The result is empty for a row without words, and for one with so many that they
        are in every bucket.
        """
        total, counts = length_and_counts(words)
        return digests(counts) if total <= self._thresholds.words_told else {}

    async def _take_all_out(
        self, connection: Connection, segment: int, partition: int, records: Mapping[int, Digests]
    ) -> set[int]:
        """Remove every posting of these records, given the words of each.

        Returns the numbers of the records that had any there.
        """
        told = set[int]()
        async for words in iterate_cooperatively(records.values(), ROWS):
            told.update(map(_bucket, words) if words else range(BUCKETS))
        taken = await self._take_out(connection, segment, partition, told, records.keys())
        different = {number for number, words in records.items() if taken.get(number) != words}
        others = set(range(BUCKETS)) - told
        if different and others:
            taken |= await self._take_out(connection, segment, partition, others, different)
        return set(taken)

    async def _take_out(
        self, connection: Connection, segment: int, partition: int, buckets: Iterable[int], numbers: Some[int]
    ) -> dict[int, dict[int, int]]:
        """Remove the postings of these records from these buckets.

        Returns the packed counts of the removed ones, by number and word.
        """
        leaving, taken = np.array(sorted(numbers), np.int64), dict[int, dict[int, int]]()
        for some in portions(sorted(buckets), self._thresholds.listed):
            wanted = pad_to_power_of_two(some)
            empty: dict[int, list[int]] = {}
            kept: list[_Row] = []
            rows = await connection.fetch(
                self._locked.format(in_list(len(wanted))), partition, segment, *wanted
            )
            async for bucket, part, content in iterate_cooperatively(rows, ROWS):
                postings = _postings(content)
                gone = (
                    postings[:, _NUMBER] == leaving[0]
                    if len(leaving) == 1
                    else np.isin(postings[:, _NUMBER], leaving)
                )
                for word, number, packed, _ in postings[gone].tolist():
                    taken.setdefault(number, {})[word] = packed
                if gone.all():
                    empty.setdefault(part, []).append(bucket)
                elif gone.any():
                    kept.append((partition, bucket, segment, part, _content(postings[~gone])))
            for part, these in empty.items():
                wanted = pad_to_power_of_two(these)
                await connection.change(
                    self._remove.format(in_list(len(wanted))), partition, segment, *wanted, part
                )
            await self._put(connection.send, kept)
        return taken

    # -- comparing ---------------------------------------------------------------------

    async def find_differing(
        self, connection: Connection, segment: int, partition: int, wanted: Mapping[int, Digests]
    ) -> set[int]:
        """Return the records whose postings in this segment differ from these counts.

        A posting that is there twice is a difference too.
        """
        buckets = sorted({_bucket(word) for words in wanted.values() for word in words})
        held: dict[int, list[tuple[int, int]]] = {}
        for some in portions(buckets, self._thresholds.listed):
            these = pad_to_power_of_two(some)
            rows = await connection.fetch(f"{self._read}{in_list(len(these))}", partition, segment, *these)
            for (content,) in rows:
                for word, number, packed, _ in _postings(content).tolist():
                    held.setdefault(number, []).append((word, packed))
        return {
            number
            for number, words in wanted.items()
            if sorted(held.get(number, [])) != sorted(words.items())
        }

    async def page(
        self, connection: Connection, after: Sequence[int], most: int
    ) -> list[tuple[tuple[int, int, int, int], set[int]]]:
        """Return the rows behind a place, in order.

        Each has its place, and the numbers of the records with postings there.
        """
        rows = await connection.fetch(self._page, after[0], *after, most)
        return [(tuple(place), set(_postings(content)[:, _NUMBER].tolist())) for *place, content in rows]

    async def take_out_everywhere(
        self, connection: Connection, segment: int, partition: int, numbers: Some[int]
    ) -> set[int]:
        """Remove the postings of all words of these records, within a transaction.

        Returns the numbers of the records that had any.
        """
        return set(await self._take_out(connection, segment, partition, range(BUCKETS), numbers))

    # -- finding -----------------------------------------------------------------------

    def find_statement(self, partitions: Sequence[int], words: Iterable[str]) -> tuple[str, list[int]]:
        """Return the statement that reads the buckets of the words, and its values."""
        places, buckets = pad_to_power_of_two(partitions), pad_to_power_of_two(list(_by_bucket(words)))
        return self._find.format(in_list(len(places)), in_list(len(buckets))), [*places, *buckets]

    async def postings_of(
        self, words: Iterable[str], rows: Iterable[tuple[int, bytes]]
    ) -> list[tuple[str, Postings]]:
        """Return the postings of each of these words in the rows that were read.

        A posting is a record's number, the packed counts, and its number of words.
        """
        by_bucket, contents = _by_bucket(words), dict[int, list[bytes]]()
        for bucket, content in rows:
            contents.setdefault(bucket, []).append(_whole(content))
        found = [(_postings(b"".join(several)), by_bucket[bucket]) for bucket, several in contents.items()]
        return [
            (word, postings[postings[:, _WORD] == digest, _NUMBER:])
            async for postings, wanted in iterate_cooperatively(found, 8)
            for word, digest in wanted
        ]


# -- buckets ---------------------------------------------------------------------------


@lru_cache(maxsize=65_536)
def _digest(word: str) -> int:
    return int.from_bytes(
        blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True
    )


def digests(counts: Mapping[str, int]) -> Digests:
    return {_digest(word): packed for word, packed in counts.items()}


def length_and_counts(words: bytes | None) -> tuple[int, Mapping[str, int]]:
    """Return the number of words, and the packed counts of each.

    Malformed input counts as no words.
    """
    try:
        return (lexical.length(words), lexical.packed_counts(words)) if words else (0, {})
    except (ValueError, TypeError, IndexError):
        return 0, {}


def _bucket(digest: int) -> int:
    return digest % BUCKETS


def _by_bucket(words: Iterable[str]) -> dict[int, list[tuple[str, int]]]:
    """Return words with their digests, by bucket."""
    by_bucket: dict[int, list[tuple[str, int]]] = {}
    for word in words:
        digest = _digest(word)
        by_bucket.setdefault(_bucket(digest), []).append((word, digest))
    return by_bucket


def _buckets(partition: int, segment: int, records: Sequence[IndexedRow], most: int) -> Iterator[_Row]:
    """Yield the rows of the records' words by bucket, at most `most` postings each."""
    numbers = [record.number for record in records]
    lengths, counts = zip(*[length_and_counts(record.words) for record in records], strict=True)
    each = [len(of_one) for of_one in counts]
    postings = np.empty((sum(each), _POSTING), np.int64)
    postings[:, _WORD] = np.fromiter(map(_digest, chain.from_iterable(counts)), np.int64)
    postings[:, _NUMBER] = np.repeat(numbers, each)
    postings[:, _COUNTS] = np.fromiter(chain.from_iterable([of_one.values() for of_one in counts]), np.int64)
    postings[:, _LENGTH] = np.repeat(lengths, each)
    buckets = (postings[:, _WORD] % BUCKETS).astype(np.int16)
    order = np.argsort(buckets, kind="stable")
    buckets, content = buckets[order], _content(postings[order])
    starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist()]
    for bucket, start, end in zip(buckets[starts].tolist(), starts, [*starts[1:], len(buckets)], strict=True):
        for part, at in enumerate(range(start, end, most)):
            yield (partition, bucket, segment, part, content[at * _SIZE : min(end, at + most) * _SIZE])


def _content(postings: Postings) -> bytes:
    return postings.astype("<i8", copy=False).tobytes()


def _postings(content: bytes) -> Postings:
    return np.frombuffer(_whole(content), "<i8").astype(np.int64, copy=False).reshape(-1, _POSTING)


def _whole(content: bytes) -> bytes:
    """Return the content without an incomplete last posting.

    The records of a truncated bucket must still be found and deleted.
    """
    return content[: len(content) // _SIZE * _SIZE]
