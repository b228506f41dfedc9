"""Words: how text is cut, folded and stemmed, and how records found by words are
ranked.

Stores that keep their own index use this as it is; one whose engine analyses text
itself documents its table (D57).
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

TOKENIZER = 2
"""The version of how texts are made into words. Raise it whenever `words` changes for
any text: stores then make their words anew.
"""

_UNSPACED = (
    # Thai to Tai Viet
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
    # Japanese, Chinese, Korean
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Blocks of scripts that write no spaces between words. Each of their characters is a
word, together with the marks behind it.
"""
_EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"
"""Each of these is a word of its own."""
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")


@lru_cache(maxsize=1)
def _alphabet() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What `fold` takes out of a decomposed text, the tokens of a folded one, and the
    words of an unspaced token, from Python's Unicode data.

    Accents of Latin, Greek and Cyrillic, points of Hebrew and vowel points of Arabic
    are taken out: words are written with and without them. So are joiners and other
    characters that show nothing. All other marks belong to their word: vowel signs,
    viramas, tone marks, the signs of voiced kana.
    """
    dropped, marks = [], []
    for code in (*range(0xAD, 0x20000), *range(0xE0000, 0xE0200)):
        category = unicodedata.category(character := chr(code))
        if category == "Cf" or (category in ("Mn", "Mc") and _is_optional(character)):
            dropped.append(code)
        elif category in ("Mn", "Mc"):
            marks.append(code)
    of_marks = _as_class(marks)
    single, letters = rf"[{_UNSPACED}][{of_marks}]*", rf"[^\W_{_UNSPACED}]"
    token = re.compile(rf"((?:{single})+)|({letters}+(?:[{of_marks}]+{letters}*)*|[{_EMOJI}])")
    return re.compile(f"[{_as_class(dropped)}]+"), token, re.compile(single)


def _is_optional(mark: str) -> bool:
    """Whether words are also written without this mark, by its combining class:
    overlays, points of Hebrew, Arabic and Syriac, accents.
    """
    kind = unicodedata.combining(mark)
    return kind == 1 or 10 <= kind <= 36 or kind >= 200 or "VARIATION SELECTOR" in unicodedata.name(mark, "")


def _as_class(codes: Sequence[int]) -> str:
    """A character class of a regular expression, in ranges. `codes` are in order."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges)


class _ThreadStemmer(threading.local):
    """A stemmer works on one word at a time: each thread has its own."""

    def __init__(self) -> None:
        self.stem = Stemmer.Stemmer("porter", 0).stemWord  # remembering is our business


_this_threads = _ThreadStemmer()

STOPWORDS = frozenset(
    """a an the this that these those i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    what which who whom whose when where why how is are was were be been being am do does did done doing have has had having will would shall should
    can could may might must of to in on at by for with from as about into over under than then there here and or but if so because while until
    tell say said ask asked remember get got make made take took go went gone s t d ll m re ve""".split()
)
"""Words that carry no meaning in a question (D58). "not" is not among them."""


LONGEST_STEMMED = 64
"""Characters. Longer runs of letters are no words of a language; cutting their ends
would take a time that grows with the square of their length.
"""


def stem(word: str) -> str:
    """The Porter stem of a folded word: deploy = deploying, not deployment; connect =
    connection; fly is not flies (D57).
    """
    return _stem_cached(word) if len(word) <= LONGEST_STEMMED else word


@lru_cache(maxsize=65_536)
def _stem_cached(word: str) -> str:
    return str(_this_threads.stem(word)) if len(word) > 2 and word.isascii() else word


def fold(text: str) -> str:
    """Case folded, accents stripped: 'Café' becomes 'cafe' (D56). Vowel signs and
    viramas stay: they tell words apart.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _alphabet()[0].sub("", decomposed))


def cut(text: str) -> list[str]:
    """The folded words of a text in order.

    A word is a run of letters, digits and marks. In Korean and in scripts without
    spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each character with its marks
    is a word. So is each emoji.
    """
    return _cut(text, pairs=False)


def cut_to_index(text: str) -> list[str]:
    """The words of `cut`, and behind each of an unspaced script the pair that it makes
    with the next: one letter of Thai tells little.
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
    """The stems of a text's words in order, as indexed."""
    return [_stem_cached(token) if len(token) <= LONGEST_STEMMED else token for token in cut_to_index(text)]


def query_words(text: str) -> list[str]:
    """The distinct stems a query looks for, in order: without stopwords, unless there
    is nothing else (D58).
    """
    tokens = cut_to_index(text)
    content = [t for t in tokens if t not in STOPWORDS] or tokens
    return list(dict.fromkeys(stem(t) for t in content))


K1, B = (
    1.2,
    0.75,
)  # the usual constants: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009)


def rarity(documents: int, containing: int) -> float:
    """How much a word tells: the inverse document frequency in its form that never
    turns negative.
    """
    return math.log1p((documents - containing + 0.5) / (containing + 0.5))


def bm25(
    frequencies: Mapping[str, float], length: float, average_length: float, rarities: Mapping[str, float]
) -> float:
    """BM25F: `frequencies` are each query word's counts in the record's text parts,
    summed under the parts' weights.

    `length` is the record's number of words over all parts, unweighted;
    `average_length` the mean of that over the asked partitions' records.
    """
    norm = K1 * (1 - B + B * length / average_length) if average_length else K1
    return sum(rarities[w] * f * (K1 + 1) / (f + norm) for w, f in frequencies.items())


def bm25_scores(
    counted: Sequence[tuple[T, Mapping[str, float], float]], documents: int, total: float
) -> list[tuple[T, float]]:
    """Those that hold a word of the question, by BM25F, unsorted. Each comes with its
    weighted counts of these words, none where it holds none, and its length; the
    statistics are of `documents` records with `total` words.
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
    """The weighted counts of the wanted stems over `(text, weight)` parts, and the
    number of words in all.
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
