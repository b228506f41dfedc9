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

from memory.ports.collections import Collection
from memory.ports.text import words

LONGEST = 128
"""Characters of a token. A longer stem is told by its digest: no text is refused for its words."""
NO_WORDS = b"[0,{}]"
"""Those of no texts."""
_BITS = 60
"""Of one integer, shared by the counts of a word in each part."""
_TOKENS = re.compile(r'"([^"]+)"')
"""In what is packed: no token has a character that JSON escapes."""
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@lru_cache(maxsize=65_536)
def token(stem: str) -> str:
    """A stem as it is kept. No stem has a '#' in it."""
    return stem if len(stem) <= LONGEST else "#" + blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def index(collection: Collection, texts: Mapping[str, str]) -> bytes:
    """The texts' words, packed. The same texts give the same bytes, in whatever order they come."""
    bits = _bits(collection)
    most = 2**bits - 1
    total, packed = 0, dict[str, int]()
    for place, part in enumerate(collection.texts):
        if not (text := texts.get(part.name)):
            continue
        stems = words(text)
        total += len(stems)
        shift = place * bits
        for stem, count in Counter(stems).items():
            word = stem if len(stem) <= LONGEST else token(stem)
            packed[word] = packed.get(word, 0) + ((count if count < most else most) << shift)
    return _to_json([total, packed]).encode()


def length(packed: bytes) -> int:
    """The number of words over all parts."""
    return int(packed[1 : packed.index(b",")])


def counts(collection: Collection, packed: bytes, stems: Several[str]) -> dict[str, float]:
    """How often each of these stems stands in the texts, summed under the parts' weights; those that do not are left out."""
    bits = _bits(collection)
    most = 2**bits - 1
    found: dict[str, float] = {}
    for stem in stems:
        named = b'"%b":' % token(stem).encode("utf-8", "surrogatepass")
        start = packed.find(named) + len(named)  # looked up where it stands: of a long text all else would be read for nothing
        if start < len(named):
            continue
        end = packed.find(b",", start)
        numbers = int(packed[start : packed.index(b"}", start) if end < 0 else end])
        found[stem] = sum([part.weight * ((numbers >> (place * bits)) & most) for place, part in enumerate(collection.texts)])
    return found


def weighted(collection: Collection, packed: bytes) -> dict[str, float]:
    """Every token of the texts, and how often it stands in them, summed under the parts' weights."""
    bits = _bits(collection)
    most, weights = 2**bits - 1, [(place * bits, part.weight) for place, part in enumerate(collection.texts)]
    held: dict[str, int] = json.loads(packed)[1]
    return {stem: sum([weight * ((numbers >> shift) & most) for shift, weight in weights]) for stem, numbers in held.items()}


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
