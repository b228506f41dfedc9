"""A record's words as one column of bytes: how many there are, and how often each of their stems stands in which part of the text.

Made from the texts once, it ranks the record for any question without cutting a text again. Words are cut and stemmed by `memory.ports.text`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection as Several
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.ports.collections import Collection
from memory.ports.text import cut, stem

LONGEST = 128
"""Characters of a token. A longer stem is told by its digest: no text is refused for its words."""
NO_WORDS = b"[0,{}]"
"""Those of no texts."""
_BITS = 60
"""Of one integer, shared by the counts of a word in each part."""
_from_json = json.JSONDecoder().decode
_TOKENS = re.compile(r'"([^"]+)"')
"""In what is packed: no token has a character that JSON escapes."""
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """A stem as it is kept. No stem has a '#' in it."""
    return stem if len(stem) <= LONGEST else "#" + blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@lru_cache(maxsize=65_536)
def _token_of(word: str) -> str:
    """The token of a folded word."""
    return token(stem(word))


def index(collection: Collection, texts: Mapping[str, str]) -> bytes:
    """The texts' words, packed. The same texts give the same bytes, in whatever order they come."""
    bits = _bits(collection)
    most = 2**bits - 1
    total, packed = 0, dict[str, int]()
    for place, part in enumerate(collection.texts):
        if text := texts.get(part.name):
            found = [_token_of(word) for word in cut(text)]
            total += len(found)
            one = 1 << (place * bits)
            once = dict.fromkeys(found, one)
            if len(once) == len(found) and (not packed or packed.keys().isdisjoint(once)):
                packed |= once
            else:
                for word, count in Counter(found).items():
                    packed[word] = packed.get(word, 0) + min(count, most) * one
    said = ",".join([f'"{token}":{numbers}' for token, numbers in packed.items()])  # JSON: a token has letters and digits, and nothing to escape
    return f"[{total},{{{said}}}]".encode()


def length(packed: bytes) -> int:
    """The number of words over all parts."""
    return int(packed[1 : packed.index(b",")])


def packed_counts(packed: bytes) -> dict[str, int]:
    """How often each token stands in which part, in one number each: see `weighed`."""
    held: dict[str, int] = _from_json(packed.decode())[1]
    return held


def weighed(collection: Collection, numbers: Any) -> Any:
    """Such a number's counts, summed under the parts' weights; also of a whole array at once."""
    bits = _bits(collection)
    most = 2**bits - 1
    return sum(part.weight * ((numbers >> (place * bits)) & most) for place, part in enumerate(collection.texts))


def counts(collection: Collection, packed: bytes, stems: Several[str]) -> dict[str, float]:
    """How often each of these stems stands in the texts, summed under the parts' weights; those that do not are left out."""
    bits = _bits(collection)
    most = 2**bits - 1
    found: dict[str, float] = {}
    for one in stems:
        named = b'"%b":' % token(one).encode("utf-8", "surrogatepass")
        start = packed.find(named) + len(named)  # looked up where it stands: of a long text all else would be read for nothing
        if start < len(named):
            continue
        end = packed.find(b",", start)
        numbers = int(packed[start : packed.index(b"}", start) if end < 0 else end])
        found[one] = sum([part.weight * ((numbers >> (place * bits)) & most) for place, part in enumerate(collection.texts)])
    return found


def weighted(collection: Collection, packed: bytes) -> dict[str, float]:
    """Every token of the texts, and how often it stands in them, summed under the parts' weights."""
    return {found: float(weighed(collection, numbers)) for found, numbers in packed_counts(packed).items()}


def tokens(packed: bytes) -> list[str]:
    """The distinct tokens, for an index."""
    return _TOKENS.findall(packed.decode())


def shortened(packed: bytes, most: int) -> bytes:
    """No more than so many bytes of it, its first tokens with their counts: those of the parts that are declared first. The length stays."""
    total, counted = json.loads(packed)
    room, kept = most - len(str(total)) - 4, dict[str, int]()
    for word, count in counted.items():
        room -= len(_to_json(word).encode()) + len(str(count)) + 2
        if room < 0:
            break
        kept[word] = count
    return _to_json([total, kept]).encode()


def _bits(collection: Collection) -> int:
    return _BITS // max(1, len(collection.texts))
