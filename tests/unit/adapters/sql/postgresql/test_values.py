"""Values on their way in and out: nothing is lost, order stays, and words are what the
server takes for words.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.sql.codec import Codec
from memory.adapters.sql.postgresql.codec import TYPES, any_lexeme, escape, index_columns, unescape
from memory.ports import lexical
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import T0, record
from memory.ports.rows import row_of
from memory.ports.text import words

TEXTS = st.text(st.one_of(st.sampled_from("\x00\x01\x02a"), st.characters(exclude_categories=["Cs"])))


@given(TEXTS, TEXTS)
def test_escaped_text_holds_no_nul_comes_back_and_keeps_its_order(one: str, other: str) -> None:
    assert "\x00" not in escape(one)
    assert unescape(escape(one)) == one
    assert (escape(one).encode() < escape(other).encode()) == (one.encode() < other.encode())
    assert (escape(one) == escape(other)) == (one == other)


@given(TEXTS, st.lists(TEXTS, max_size=3))
def test_a_row_comes_back_from_its_columns_as_it_was(text: str, tags: list[str]) -> None:
    fields = {"type": text, "tags": tuple(tags), "valid_from": T0, "confidence": -0.0, "pinned": True}
    texts = {"content": text, "title": "Café"}
    row = row_of(SAMPLES, record(7, fields=fields, texts=texts, body={"k": text}, tier=text, expires_at=T0))
    codec = Codec(SAMPLES, TYPES)
    columns = codec.values(row)
    assert codec.read(columns) == (row._replace(words=b""), "")
    columns[codec.at["tier"]] += "x"
    assert codec.read(columns)[1] == "checksum mismatch"


@given(st.text(max_size=300))
def test_a_lexeme_is_plain_letters_and_digits_and_short(text: str) -> None:
    for stem in words(text):
        made = any_lexeme([12], stem)
        assert made.isascii()
        assert made.isalnum()
        assert made.startswith("p12")
        assert len(made) < 600


def test_words_are_counted_beside_their_lexemes() -> None:
    packed = lexical.index(SAMPLES, {"title": "lantern", "content": "lantern lantern Wörter"})
    total, counts, lexemes = index_columns(3, packed)
    assert total == 4
    assert lexemes.split() == ["p3xlantern", any_lexeme([3], "worter")]
    assert json.loads(counts) == lexical.packed_counts(packed)
