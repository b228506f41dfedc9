"""A record's words packed as bytes: their number, and the counts of each stem.

The counts are separate for each part of the text. They are made from the texts once,
and rank the record for any question. Words are split and stemmed by
`memory.ports.text`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as Several
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.ports.collections import Collection
from memory.ports.text import cut_to_index, stem

LONGEST = 128
"""The most characters of a token.

A digest replaces a longer stem, so no text is refused for its words.
"""
NO_WORDS = b"0"
"""The packed words of a record without texts."""
_BITS = 60
"""The bits of one integer that the counts of a word in each part share."""


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """Return the stored form of a stem. No stem contains a '#'."""
    return (
        stem
        if len(stem) <= LONGEST
        else "#" + blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    )


@lru_cache(maxsize=65_536)
def _token_of(word: str) -> str:
    """Return the token of a folded word."""
    return token(stem(word))


def index(collection: Collection, texts: Mapping[str, str]) -> bytes:
    """Pack the words of the texts.

    The same texts give the same bytes in any order.
    """
    bits = _bits(collection)
    most = 2**bits - 1
    total, packed = 0, dict[str, int]()
    for place, part in enumerate(collection.texts):
        if text := texts.get(part.name):
            tokens = [_token_of(word) for word in cut_to_index(text)]
            total += len(tokens)
            one = 1 << (place * bits)
            once = dict.fromkeys(tokens, one)
            if len(once) == len(tokens) and (not packed or packed.keys().isdisjoint(once)):
                packed |= once
            else:
                for found, count in Counter(tokens).items():
                    packed[found] = packed.get(found, 0) + min(count, most) * one
    return _pack(total, packed)


def _pack(total: int, counted: Mapping[str, int]) -> bytes:
    """Pack the number of words, and the tokens grouped by equal counts.

    The groups are separated by semicolons. A token has only letters and digits.
    """
    alike: dict[int, list[str]] = {}
    for found, numbers in counted.items():
        alike.setdefault(numbers, []).append(found)
    return ";".join(
        [str(total), *[f"{numbers} {' '.join(found)}" for numbers, found in alike.items()]]
    ).encode()


def length(packed: bytes) -> int:
    """Return the number of words over all parts."""
    return int(packed.partition(b";")[0])


def packed_counts(packed: bytes) -> dict[str, int]:
    """Return each token's counts in all parts as one number; see `weighted_sum`."""
    held: dict[str, int] = {}
    for line in packed.decode().split(";")[1:]:
        numbers, *alike = line.split(" ")
        held |= dict.fromkeys(alike, int(numbers))
    return held


def weighted_sum(collection: Collection, numbers: Any) -> Any:
    """Return the weighted sum of the counts in one number or an array of them."""
    bits = _bits(collection)
    most = 2**bits - 1
    return sum(
        (part.weight * ((numbers >> (place * bits)) & most) for place, part in enumerate(collection.texts)),
        0.0 * numbers,
    )


def counts(collection: Collection, packed: bytes, stems: Several[str]) -> dict[str, float]:
    """Return how often each of these stems occurs, summed under the parts' weights.

    Stems that do not occur are left out.
    """
    named = {stem: b" %b " % token(stem).encode("utf-8", "surrogatepass") for stem in stems}
    found: dict[str, float] = {}
    for line in packed.split(b";")[1:]:
        line += b" "
        if here := [
            stem for stem, word in named.items() if word in line
        ]:  # looked up where they stand: all else would be read for nothing
            found |= dict.fromkeys(here, float(weighted_sum(collection, int(line.partition(b" ")[0]))))
    return found


def weighted_counts(collection: Collection, packed: bytes) -> dict[str, float]:
    """Return how often every token occurs, summed under the parts' weights."""
    counted = packed_counts(packed)
    weights = {numbers: float(weighted_sum(collection, numbers)) for numbers in set(counted.values())}
    return {found: weights[numbers] for found, numbers in counted.items()}


def tokens(packed: bytes) -> list[str]:
    """Return the distinct tokens, for an index."""
    return list(packed_counts(packed))


def truncate(packed: bytes, most: int) -> bytes:
    """Shorten the packed words to about `most` bytes.

    It keeps the first tokens with their counts, and the length.
    """
    room, kept = most - 64, dict[str, int]()
    for word, numbers in packed_counts(packed).items():
        room -= len(word.encode()) + 22
        if room < 0:
            break
        kept[word] = numbers
    return _pack(length(packed), kept)


def _bits(collection: Collection) -> int:
    return _BITS // max(1, len(collection.texts))
