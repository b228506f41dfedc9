"""Values on their way in and out: nothing is lost, order stays, and what is digested is the same in every version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.sql.postgresql.rows import layout_of
from memory.adapters.sql.postgresql.values import canonical, checked, escape, for_jsonb, from_jsonb, unescape
from memory.adapters.sql.postgresql.words import counts_text, lexeme, vector_text
from memory.adapters.sql.words import Parts, token
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import T0, record
from memory.ports.record import Owed, Role, pack_vector
from memory.ports.storable import Unstorable
from memory.ports.text import words

PINNED = -6671075226494351378
TEXTS = st.text(st.one_of(st.sampled_from("\x00\x01\x02a"), st.characters(exclude_categories=["Cs"])))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@given(TEXTS, TEXTS)
def test_escaped_text_holds_no_nul_comes_back_and_keeps_its_order(one: str, other: str) -> None:
    assert "\x00" not in escape(one)
    assert unescape(escape(one)) == one
    assert (escape(one).encode() < escape(other).encode()) == (one.encode() < other.encode())
    assert (escape(one) == escape(other)) == (one == other)


@given(JSON)
def test_json_comes_back_unchanged_and_every_number_survives_as_a_decimal(value: object) -> None:
    text = canonical("body", value)
    sent = for_jsonb(text)
    assert "\\u0000" not in sent
    restored, again = from_jsonb(sent)
    assert again == text
    assert repr(restored) == repr(json.loads(text))


def test_half_a_character_is_refused_without_showing_the_text() -> None:
    with pytest.raises(Unstorable, match="surrogate") as caught:
        checked("secret \ud800")
    assert "secret" not in str(caught.value)
    with pytest.raises(Unstorable, match="surrogate") as caught:
        canonical("body", {"k": "secret \ud800"})
    assert "secret" not in str(caught.value)


def test_the_digest_of_a_row_is_the_same_in_every_version() -> None:
    full = record(
        7,
        fields={"type": "fact", "tags": ("b", "a\x00"), "confidence": 0.1, "valid_from": T0},
        body={"z": [1, -0.0, 1e300, None], "a": "é\x00"},
        texts={"title": "Café", "content": "deploying servers"},
        vector=pack_vector([1.0, -2.5]),
        role=Role.ARRIVING,
        tier="mid",
        owed=(Owed("deliver", "deliver", {"to": "long"}),),
        expires_at=T0,
    )
    layout = layout_of(SAMPLES)
    sealed = layout.sealed(layout.record(full, 3, 5))
    assert sealed[len(layout.columns) - 1] == PINNED


@given(st.text(max_size=300))
def test_a_lexeme_is_plain_letters_and_digits_and_short(text: str) -> None:
    for stem in words(text):
        made = lexeme(12, stem)
        assert made.isascii()
        assert made.isalnum()
        assert made.startswith("p12")
        assert len(made) < 600


def test_words_are_labelled_by_weight_and_counted_by_part() -> None:
    parts = Parts([10.0, 4.0, 8.0, 2.0])
    total, counts, labels = parts.index(["lantern", "lantern lantern tide", None, "tide"])
    assert total == 5
    assert vector_text(3, labels) == "p3xlantern:1A,2C p3xtide:2C,4D"
    assert [int(n) for n in parts.unpacked(counts[token("lantern")])] == [1, 2, 0, 0]
    assert json.loads(counts_text(counts)) == counts


def test_counts_stop_at_what_their_bits_hold() -> None:
    parts = Parts([1.0] * 4)
    _, counts, _ = parts.index(["x " * 40_000, None, None, "x"])
    assert [int(n) for n in parts.unpacked(counts[token("x")])] == [32_767, 0, 0, 1]
