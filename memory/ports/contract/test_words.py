"""Search by words: word boundaries, ranking, and text that is never syntax."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    apply_all,
    delete,
    everything_of,
    fetch_record,
    hit_ids,
    id_of,
    put,
    record,
    search_hits,
    selections,
)
from memory.ports.heads import head_of
from memory.ports.query import Eq, Search, Tenant, Words, within
from memory.ports.record import Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion

HOSTILE_QUERIES = [
    "", " ", "'", '"', '""', "O'Brien", "hello -world", "-", "*", "caf*", "title:x", "content : y", "AND", "OR", "NOT", "a AND",
    "NEAR(a b)", "NEAR/3", "(", ")", "((", "a OR (b", "^x", "{title}: x", "+", "a + b", "%", "_", "\\", "; DROP TABLE samples; --",
    "x\x00y", "\x00", "🦜", "<->", "a & b | !c", ":*", "@title:(x)", "~", "?", "[a TO z]", "/regex/", "$where", "\ud7ff",
    "word " * 2000, "x" * 20_000, "\n\t", "東京", "%' OR 1=1 --", "''''", '"a" "b',
]  # fmt: skip


def text(n: int, content: str = "", **parts: Any) -> Record:
    return record(n, texts={"content": content}, **parts)


async def _ranked_numbers(store: Store, query: str) -> list[int]:
    by_id = {id_of(n): n for n in range(100)}
    return [by_id[hit.head.key.id] for hit in await search_hits(store, query)]


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_any_content_word_of_the_query_finds_a_record(store: Store) -> None:
    await apply_all(store, put(text(1, "alpha beta")), put(text(2, "beta gamma")), put(text(3, "delta")))
    assert await hit_ids(store, "alpha gamma") == {id_of(1), id_of(2)}
    assert await hit_ids(store, "delta omega") == {id_of(3)}
    assert await hit_ids(store, "omega") == set()


@clause("lexical.ranks")
@needs("lexical")
@pytest.mark.asyncio
async def test_a_hit_is_the_head_of_its_record_with_a_positive_score_best_first(store: Store) -> None:
    await apply_all(store, *[put(text(n, "word " * n + "filler " * 10)) for n in range(1, 6)])
    hits = await search_hits(store, "word")
    assert [hit.head for hit in hits] == [
        head_of(SAMPLES, await fetch_record(store, n), frozenset()) for n in (5, 4, 3, 2, 1)
    ]
    assert all(a.score > b.score > 0 for a, b in itertools.pairwise(hits))


@clause("search.heads", "heads.exact")
@needs("lexical")
@pytest.mark.asyncio
async def test_a_hit_by_words_is_the_same_copy_with_the_same_score_whatever_is_selected(store: Store) -> None:
    await apply_all(
        store,
        *[
            put(text(n, "word " * n + "filler", body={"k": n}, tier="mid", role=Role.REPLICA))
            for n in range(1, 5)
        ],
    )
    records = [await fetch_record(store, n) for n in (4, 3, 2, 1)]
    bare = await search_hits(store, "word", roles=frozenset({Role.REPLICA}))
    for select in selections(SAMPLES):
        hits = await search_hits(store, "word", roles=frozenset({Role.REPLICA}), select=select)
        assert [h.head for h in hits] == [head_of(SAMPLES, r, select) for r in records], select
        assert [h.score for h in hits] == pytest.approx([h.score for h in bare])


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
@cells("query", HOSTILE_QUERIES, ids=lambda q: ascii(q[:20]), shared=True)
async def test_no_text_is_syntax_or_raises(store: Store, query: str) -> None:
    await apply_all(
        store,
        put(text(1, "plain text of no interest")),
        put(record(2, texts={"title": query[:100].replace("\x00", " "), "content": "aardvark"})),
    )
    hits = await search_hits(store, query)
    assert id_of(1) not in {hit.head.key.id for hit in hits}


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_operators_in_a_query_are_words_or_nothing(store: Store) -> None:
    await apply_all(
        store, put(text(1, "hello world")), put(text(2, "hello")), put(text(3, "Patrick O'Brien sails"))
    )
    assert await hit_ids(store, "hello -world") == {id_of(1), id_of(2)}
    assert await hit_ids(store, "NOT hello") == {id_of(1), id_of(2)}
    assert await hit_ids(store, "content:sails") == {id_of(3)}
    assert await hit_ids(store, "hel*") == set()
    assert await hit_ids(store, '"world hello"') == {id_of(1), id_of(2)}
    assert await hit_ids(store, "O'Brien") == {id_of(3)}


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_a_query_without_words_finds_nothing(store: Store) -> None:
    await apply_all(store, put(text(1, "anything ?!")))
    for query in ("", "  ", "?!", "--", "*", "\x00"):
        assert await search_hits(store, query) == []


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_stems_agree_with_the_adapters_table(store: Store, harness: Harness) -> None:
    words = sorted(
        {w for group in (*harness.stemming["same"], *harness.stemming["different"]) for w in group}
    )
    numbers = {word: n for n, word in enumerate(words)}
    await apply_all(store, *[put(text(n, f"{word} only")) for word, n in numbers.items()])
    for group in harness.stemming["same"]:
        for asked in group:
            assert {id_of(numbers[w]) for w in group} <= await hit_ids(store, asked), (
                f"'{asked}' finds all of {group}"
            )
    for group in harness.stemming["different"]:
        for asked in group:
            assert {id_of(numbers[w]) for w in group} & await hit_ids(store, asked) == {
                id_of(numbers[asked])
            }, f"'{asked}' is no other of {group}"


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_case_and_diacritics_do_not_matter(store: Store) -> None:
    await apply_all(
        store,
        put(text(1, "Café notes")),
        put(text(2, "naïve RÉSUMÉ")),
        put(text(3, "Straße")),
        put(text(4, "e\u0301tude")),
    )
    for query, n in (
        ("cafe", 1),
        ("CAFÉ", 1),
        ("cafe\u0301", 1),
        ("resume", 2),
        ("NAIVE", 2),
        ("strasse", 3),
        ("étude", 4),
        ("etude", 4),
    ):
        assert await hit_ids(store, query) == {id_of(n)}, query


SIGNS = [
    "माला",
    "मेला",
    "मिला",
    "मैला",
    "பால்",
    "பல்",
    "பாலை",
    "বালি",
    "বেলা",
    "బడి",
    "బిడ్డ",
    "मल",
    "पानी",
    "पाणि",
    "ශ්‍රී",
    "ශිර",
]
UNSPACED = [
    ("ฉันชอบดื่มชาเขียวตอนเช้า", "ชาเขียว"),
    ("ຂ້ອຍມັກຊາຂຽວຫຼາຍ", "ຊາຂຽວ"),
    ("ខ្ញុំចូលចិត្តតែបៃតងណាស់", "តែបៃតង"),
    ("ကျွန်တော်လက်ဖက်ရည်ကြိုက်တယ်", "လက်ဖက်ရည်"),
    ("用户的服务器部署在腾讯云国内节点", "腾讯云"),
    ("今日はしりとりをした", "しりとり"),
    ("서울에서 만났다", "서울"),
    ("🍕 on Friday", "🍕"),
]


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_vowel_signs_tell_words_apart(store: Store) -> None:
    await apply_all(store, *[put(text(n, word)) for n, word in enumerate(SIGNS)])
    for n, word in enumerate(SIGNS):
        assert await hit_ids(store, word) == {id_of(n)}, word


@clause("lexical.words", "lexical.ranks")
@needs("lexical")
@pytest.mark.asyncio
async def test_a_word_inside_a_text_without_spaces_finds_it(store: Store) -> None:
    await apply_all(store, *[put(text(n, content)) for n, (content, _) in enumerate(UNSPACED)])
    assert [(await _ranked_numbers(store, word))[:1] for _, word in UNSPACED] == [
        [n] for n in range(len(UNSPACED))
    ]


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_part_of_a_word_finds_nothing(store: Store) -> None:
    await apply_all(store, put(text(1, "Café deployment kubernetes 12345")))
    for query in ("caf", "kuber", "netes", "1234", "deploymen"):
        assert await hit_ids(store, query) == set(), query


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_a_run_of_letters_of_any_length_is_one_word(store: Store) -> None:
    """A stemmer's time grows with the square of a word's length."""
    await apply_all(store, put(text(1, "y" * 100_000)), put(text(2, "y" * 99_999)))
    assert await hit_ids(store, "y" * 100_000) == {id_of(1)}


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_stopwords_are_asked_only_when_there_is_nothing_else(store: Store) -> None:
    await apply_all(
        store, put(text(1, "the lighthouse")), put(text(2, "the harbour")), put(text(3, "not here"))
    )
    assert await hit_ids(store, "what is the lighthouse") == {id_of(1)}
    assert await hit_ids(store, "the") == {id_of(1), id_of(2)}
    assert await hit_ids(store, "what is the") >= {id_of(1), id_of(2)}
    assert await hit_ids(store, "not") == {id_of(3)}, "'not' is no stopword"


@clause("lexical.ranks")
@needs("lexical")
@pytest.mark.asyncio
async def test_every_text_part_is_found_and_heavier_parts_rank_higher(store: Store) -> None:
    other = "filler words around it"
    parts = ["source", "content", "tags", "title"]
    for n, part in enumerate(parts):
        await apply_all(store, put(record(n, texts={p: "lantern" if p == part else other for p in parts})))
    assert await _ranked_numbers(store, "lantern") == [3, 2, 1, 0]
    for n, part in enumerate(parts):
        await apply_all(store, put(record(n, version=2, texts={part: "lantern beside some other words"})))
    assert await _ranked_numbers(store, "lantern") == [3, 2, 1, 0], "also where the other parts are missing"


@clause("lexical.ranks")
@needs("lexical")
@pytest.mark.asyncio
async def test_rare_words_tell_more_than_common_ones(store: Store) -> None:
    await apply_all(store, *[put(text(n, "common filler")) for n in range(20)], put(text(50, "rare filler")))
    assert (await _ranked_numbers(store, "common rare"))[0] == 50


@clause("lexical.ranks")
@needs("lexical")
@pytest.mark.asyncio
async def test_short_texts_rank_above_long_ones_of_the_same_words(store: Store) -> None:
    await apply_all(
        store,
        put(text(1, "lantern " + "filler " * 200)),
        put(text(2, "lantern filler")),
        put(text(3, "something else")),
    )
    assert await _ranked_numbers(store, "lantern") == [2, 1]


@clause("search.limit")
@needs("lexical")
@pytest.mark.asyncio
async def test_ties_come_by_id_and_the_limit_cuts_the_worst(store: Store) -> None:
    await apply_all(
        store, *[put(text(n, "lantern")) for n in (5, 3, 9, 1, 7)], put(text(4, "lantern lantern"))
    )
    for select in (frozenset[str](), everything_of(SAMPLES)):
        for limit in (50, 3):
            hits = await search_hits(store, "lantern", limit=limit, select=select)
            assert [h.head.key.id for h in hits] == [id_of(n) for n in (4, 1, 3, 5, 7, 9)][:limit]


@clause("lexical.follows")
@needs("lexical", "conditional")
@pytest.mark.asyncio
async def test_the_index_follows_every_write_at_once(store: Store) -> None:
    await apply_all(store, put(text(1, "walrus")))
    await apply_all(store, put(text(1, "penguin", version=2), AtVersion(1)))
    assert (await hit_ids(store, "walrus"), await hit_ids(store, "penguin")) == (set(), {id_of(1)})
    await apply_all(store, put(record(1, version=3), AtVersion(2)))
    assert await hit_ids(store, "penguin") == set()
    await apply_all(store, put(text(1, "puffin", version=4), AtVersion(3)), delete(1))
    assert await hit_ids(store, "puffin") == set()
    await apply_all(store, put(text(1, "puffin", version=200), AtVersion(100)))
    assert await hit_ids(store, "puffin") == {id_of(1)}
    for n, part in enumerate(SAMPLES.weights, start=300):  # one part alone changes, and has the word no more
        both = {"content": "gannet", "title": "gannet", part: "walrus"}
        await apply_all(
            store,
            put(record(2, version=2 * n, texts=both)),
            put(record(2, version=2 * n + 1, texts=both | {part: "penguin"})),
        )
        assert (await hit_ids(store, "walrus"), await hit_ids(store, "penguin")) == (set(), {id_of(2)}), part


@clause("query.roles")
@needs("lexical")
@pytest.mark.asyncio
async def test_only_the_asked_roles_are_found_by_words(store: Store) -> None:
    await apply_all(store, *[put(text(n, "lantern", role=role)) for n, role in enumerate(Role)])
    assert await _ranked_numbers(store, "lantern") == [0]
    replicas = await search_hits(store, "lantern", roles=frozenset({Role.REPLICA}))
    assert [h.head.key.id for h in replicas] == [id_of(1)]


@clause("search.limit")
@needs("lexical", "filter")
@pytest.mark.asyncio
async def test_a_filter_chooses_before_the_limit_cuts(store: Store) -> None:
    await apply_all(
        store,
        *[put(text(n, "lantern " * 3, fields={"type": "loud"})) for n in range(60)],
        put(text(70, "lantern " + "x " * 50, fields={"type": "quiet"})),
    )
    hits = await search_hits(store, "lantern", limit=1, filter=Eq("type", "quiet"))
    assert [h.head.key.id for h in hits] == [id_of(70)]


@clause("isolation.where")
@needs("lexical")
@pytest.mark.asyncio
async def test_several_partitions_are_searched_together(store: Store) -> None:
    await apply_all(store, put(text(1, "lantern")), put(record(2, ELSEWHERE, texts={"content": "lantern"})))
    assert await hit_ids(store, "lantern", within(HERE, ELSEWHERE)) == {id_of(1), id_of(2, ELSEWHERE)}


@clause("everywhere.all")
@needs("lexical", "tenant_wide")
@pytest.mark.asyncio
async def test_a_whole_tenant_is_searched_by_words(store: Store) -> None:
    await apply_all(store, put(text(1, "lantern")), put(record(2, ELSEWHERE, texts={"content": "lantern"})))
    assert await hit_ids(store, "lantern", Tenant("acme")) == {id_of(1), id_of(2, ELSEWHERE)}
    assert await hit_ids(store, "lantern", Tenant("umbrella")) == set()


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_cjk_text_is_found_by_its_characters(store: Store) -> None:
    await apply_all(store, put(text(1, "東京タワー")), put(text(2, "京都")))
    assert await hit_ids(store, "東") == {id_of(1)}
    assert await hit_ids(store, "京") == {id_of(1), id_of(2)}


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_a_collection_without_texts_has_nothing_to_find_by_words(store: Store) -> None:
    await apply_all(store, put(record(), collection=PLAIN))
    assert await store.search(Search(PLAIN, within(HERE), Words("anything"), 5)) == []
