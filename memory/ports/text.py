"""Words: how text is split, folded and stemmed, and how BM25 ranks records.

Stores that keep their own index of words use this module. An adapter whose engine
analyses text itself documents its differences.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import Stemmer

T = TypeVar("T")

TOKENIZER = 3
"""The version of the word analysis.

Raise it whenever `words` changes for any text. Stores then rebuild their words.
"""

_UNSPACED = (
    # Thai to Tai Viet
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
    # Japanese, Chinese, Korean
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Blocks of scripts that write no spaces between words.

Each of their characters is a word, together with the marks after it.
"""
_EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"
"""Each of these is a word of its own."""
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")
_TATWEEL = 0x640
"""The stroke that stretches Arabic words."""


@lru_cache(maxsize=1)
def _alphabet() -> tuple[Mapping[int, str | None], re.Pattern[str], re.Pattern[str]]:
    """Build the tables of `fold` and `cut` from Python's Unicode data.

    The first says which characters of a decomposed text `fold` removes, and what it
    writes for digits. The second matches the tokens of a folded text, the third the
    words of an unspaced token.

    Removed are accents of Latin, Greek and Cyrillic, points of Hebrew and vowel points
    of Arabic: words are written with and without them. Joiners and other invisible
    characters are removed too, and the tatweel of Arabic. All other marks belong to
    their word: vowel signs, viramas, tone marks, the signs of voiced kana.
    """
    folded: dict[int, str | None] = {}
    marks = []
    for code in (*range(0xAD, 0x20000), *range(0xE0000, 0xE0200)):
        category = unicodedata.category(character := chr(code))
        if category == "Cf" or code == _TATWEEL or (category in ("Mn", "Mc") and _is_optional(character)):
            folded[code] = None
        elif category == "Nd":
            folded[code] = str(unicodedata.digit(character))
        elif category in ("Mn", "Mc"):
            marks.append(code)
    of_marks = _as_class(marks)
    single, letters = rf"[{_UNSPACED}][{of_marks}]*", rf"[^\W_{_UNSPACED}]"
    token = re.compile(rf"((?:{single})+)|({letters}+(?:[{of_marks}]+{letters}*)*|[{_EMOJI}])")
    return folded, token, re.compile(single)


def _is_optional(mark: str) -> bool:
    """Whether words are also written without this mark, by its combining class.

    Such marks are overlays, points of Hebrew, Arabic and Syriac, and accents.
    """
    kind = unicodedata.combining(mark)
    return kind == 1 or 10 <= kind <= 36 or kind >= 200 or "VARIATION SELECTOR" in unicodedata.name(mark, "")


def _as_class(codes: Sequence[int]) -> str:
    """Return a regular expression's character class of these sorted codes."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges)


class _ThreadStemmer(threading.local):
    """A stemmer for each thread, because one works on one word at a time."""

    def __init__(self) -> None:
        self.stem = Stemmer.Stemmer("porter", 0).stemWord  # remembering is our business


_this_threads = _ThreadStemmer()

STOPWORDS = frozenset(
    """a an the this that these those i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    what which who whom whose when where why how is are was were be been being am do does did done doing have has had having will would shall should
    can could may might must of to in on at by for with from as about into over under than then there here and or but if so because while until
    tell say said ask asked remember get got make made take took go went gone s t d ll m re ve""".split()
)
"""Words without meaning in a question. "not" is not among them."""


LONGEST_STEMMED = 64
"""The most characters of a word that is stemmed.

Longer runs of letters are no words of a language. Stemming them takes time that grows
with the square of their length.
"""


def stem(word: str) -> str:
    """Return the Porter stem of a folded word.

    For example, "deploy" equals "deploying" but not "deployment", "connect" equals
    "connection", and "fly" differs from "flies".
    """
    return _stem_cached(word) if len(word) <= LONGEST_STEMMED else word


@lru_cache(maxsize=65_536)
def _stem_cached(word: str) -> str:
    return str(_this_threads.stem(word)) if len(word) > 2 and word.isascii() else word


def fold(text: str) -> str:
    """Fold case, strip accents, and write the digits of all scripts as 0 to 9.

    'Café' becomes 'cafe'. Vowel signs and viramas stay, because they distinguish words.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", decomposed.translate(_alphabet()[0]))


def cut(text: str) -> list[str]:
    """Return the folded words of a text in order.

    A word is a run of letters, digits and marks. In Korean and in scripts without
    spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each character with its marks
    is a word. So is each emoji.
    """
    return _cut(text, pairs=False)


def cut_to_index(text: str) -> list[str]:
    """Return the words of `cut`, with pairs of words in unspaced scripts.

    After each such word comes its pair with the next one, because one letter of Thai
    says little.
    """
    return _cut(text, pairs=True)


def _cut(text: str, *, pairs: bool) -> list[str]:
    folded = fold(text)
    if folded.isascii():
        return _ASCII_TOKEN.findall(folded)
    _, token, single = _alphabet()
    found: list[str] = []
    for unspaced, word in token.findall(folded):
        if word:
            found.append(word)
            continue
        characters = single.findall(unspaced)
        if pairs and len(characters) > 1:
            for one, following in pairwise(characters):
                found += (one, one + following)
            found.append(characters[-1])
        else:
            found += characters
    return found


def words(text: str) -> list[str]:
    """Return the stems of a text's words in order, as indexed."""
    return [_stem_cached(token) if len(token) <= LONGEST_STEMMED else token for token in cut_to_index(text)]


def query_words(text: str) -> list[str]:
    """Return the distinct stems that a query searches for, in order.

    Stopwords are left out, unless the text has no other words.
    """
    tokens = cut_to_index(text)
    content = [t for t in tokens if t not in STOPWORDS] or tokens
    return list(dict.fromkeys(stem(t) for t in content))


K1, B = (
    1.2,
    0.75,
)  # the usual constants: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009)


def rarity(documents: int, containing: int) -> float:
    """Return a word's inverse document frequency, in the non-negative form."""
    return math.log1p((documents - containing + 0.5) / (containing + 0.5))


def bm25(
    frequencies: Mapping[str, float], length: float, average_length: float, rarities: Mapping[str, float]
) -> float:
    """Return the BM25F score of one record.

    Args:
        frequencies: The counts of each query word in the record's text parts, summed
            under the parts' weights.
        length: The record's unweighted number of words over all parts.
        average_length: The mean of `length` over the records of the searched
            partitions.
    """
    norm = K1 * (1 - B + B * length / average_length) if average_length else K1
    return sum(rarities[w] * f * (K1 + 1) / (f + norm) for w, f in frequencies.items())


def bm25_scores(
    counted: Sequence[tuple[T, Mapping[str, float], float]], documents: int, total: float
) -> list[tuple[T, float]]:
    """Return the records that hold a word of the question, with BM25F scores, unsorted.

    Args:
        counted: Each record with its weighted counts of these words and its length. The
            counts are empty if it holds none of the words.
        documents: The number of records of the statistics.
        total: The number of their words.
    """
    average = total / documents if documents else 0.0
    containing = Counter(word for _, frequencies, _ in counted for word in frequencies)
    rarities = {word: rarity(documents, holding) for word, holding in containing.items()}
    return [
        (one, bm25(frequencies, length, average, rarities))
        for one, frequencies, length in counted
        if frequencies
    ]


def count_words(parts: Iterable[tuple[str, float]], wanted: frozenset[str]) -> tuple[dict[str, float], int]:
    """Return the weighted counts of the wanted stems, and the number of all words.

    `parts` are pairs of text and weight.
    """
    found: dict[str, float] = {}
    total = 0
    for text, weight in parts:
        stems = words(text)
        total += len(stems)
        for s in stems:
            if s in wanted:
                found[s] = found.get(s, 0.0) + weight
    return found, total
