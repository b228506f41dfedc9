"""A record's words as one column of bytes: how many there are, and how often each of
their stems stands in which part of the text.

Made from the texts once, it ranks the record for any question without cutting a text
again. Words are cut and stemmed by `memory.ports.text`.
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
"""Characters of a token. A longer stem is told by its digest: no text is refused for
its words.
"""
NO_WORDS = b"0"
"""Those of no texts."""
_BITS = 60
"""Of one integer, shared by the counts of a word in each part."""


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """A stem as it is kept. No stem has a '#' in it."""
    return (
        stem
        if len(stem) <= LONGEST
        else "#" + blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    )


@lru_cache(maxsize=65_536)
def _token_of(word: str) -> str:
    """The token of a folded word."""
    return token(stem(word))


def index(collection: Collection, texts: Mapping[str, str]) -> bytes:
    """The texts' words, packed. The same texts give the same bytes, in whatever order
    they come.
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
    """The number of words, and behind semicolons each number of counts with the tokens
    that have it. A token has letters and digits alone.
    """
    alike: dict[int, list[str]] = {}
    for found, numbers in counted.items():
        alike.setdefault(numbers, []).append(found)
    return ";".join(
        [str(total), *[f"{numbers} {' '.join(found)}" for numbers, found in alike.items()]]
    ).encode()


def length(packed: bytes) -> int:
    """The number of words over all parts."""
    return int(packed.partition(b";")[0])


def packed_counts(packed: bytes) -> dict[str, int]:
    """How often each token stands in which part, in one number each: see `weighed`."""
    held: dict[str, int] = {}
    for line in packed.decode().split(";")[1:]:
        numbers, *alike = line.split(" ")
        held |= dict.fromkeys(alike, int(numbers))
    return held


def weighted_sum(collection: Collection, numbers: Any) -> Any:
    """Such a number's counts, summed under the parts' weights; also of a whole array at
    once.
    """
    bits = _bits(collection)
    most = 2**bits - 1
    return sum(
        (part.weight * ((numbers >> (place * bits)) & most) for place, part in enumerate(collection.texts)),
        0.0 * numbers,
    )


def counts(collection: Collection, packed: bytes, stems: Several[str]) -> dict[str, float]:
    """How often each of these stems stands in the texts, summed under the parts'
    weights; those that do not are left out.
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
    """Every token of the texts, and how often it stands in them, summed under the
    parts' weights.
    """
    counted = packed_counts(packed)
    weights = {numbers: float(weighted_sum(collection, numbers)) for numbers in set(counted.values())}
    return {found: weights[numbers] for found, numbers in counted.items()}


def tokens(packed: bytes) -> list[str]:
    """The distinct tokens, for an index."""
    return list(packed_counts(packed))


def truncate(packed: bytes, most: int) -> bytes:
    """About so many bytes of it at most, its first tokens with their counts. The length
    stays.
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
