"""Search by words in scripts with vowel signs, with accents and without spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.facade.memory import Memory

TEXT = Path(__file__).with_name("scripts.txt")
ASKED, ELSEWHERE = 2, 17
"""Of so many words one is asked for: on the default file, and where other stores keep
words. One word takes 5 ms.
"""


def sentences() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Each script with its sentences, and the words of each. Scripts without spaces are
    marked "joined" in the file.
    """
    for part in TEXT.read_text().split("# ")[1:]:
        title, *lines = part.splitlines()
        script, *how = title.split()
        yield script, [(("" if how else " ").join(line.split()), line.split()) for line in lines]


SCRIPTS = list(sentences())


def unique_words(spoken: list[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    """Each word that stands in one sentence only, also as a part of a longer one, with
    that sentence.
    """
    times = Counter(word for _, words in spoken for word in set(words))
    return [
        (word, text)
        for text, words in spoken
        for word in words
        if times[word] == 1 and sum(word in other for other, _ in spoken) == 1
    ]


def test_there_are_twelve_scripts_of_thirty_sentences() -> None:
    assert [len(spoken) for _, spoken in SCRIPTS] == [30] * 12
    assert sum(len(unique_words(spoken)) for _, spoken in SCRIPTS) > 900


@pytest.mark.behaviour("D56", "D57")
async def test_a_word_that_stands_in_one_sentence_finds_that_sentence_first(
    memory: Memory, config: dict[str, Any]
) -> None:
    everyones = "one.db" in config["tiers"]["short"]
    for script, spoken in SCRIPTS:
        for text, _ in spoken:
            await memory.write(text, scope=f"user:{script}")
        asked = unique_words(spoken)[:: ASKED if everyones else ELSEWHERE]
        found = [
            (
                word,
                [
                    hit.entry.content
                    for hit in await memory.search(word, scope=f"user:{script}", mode="lexical", limit=1)
                ],
            )
            for word, _ in asked
        ]
        assert found == [(word, [text]) for word, text in asked], script


@pytest.mark.behaviour("D56", "D57")
@pytest.mark.parametrize(
    ("asked", "found", "others"),
    [
        ("माला", "मुझे माला पसंद है", ["कल मेला देखा", "वह मुझे मिला", "कपड़ा मैला है", "मूली खरीदो"]),
        ("दिन", "आज का दिन अच्छा है", ["उसने दान दिया", "यह उसकी देन है", "दीन लोगों की मदद"]),
        ("பால்", "பால் வாங்க வேண்டும்", ["பல் வலிக்கிறது", "புலி வந்தது", "பாலை வறண்டது"]),
        ("বালি", "বালি দরকার", ["বেলা হয়েছে", "সে বলে", "বোলো না"]),
        ("මල", "මල සුවඳයි", ["මාල ගනිමු", "මුල හොයන්න", "මිල අඩුයි"]),
        ("ಹಾಲು", "ಹಾಲು ಬೇಕು", ["ಹುಲಿ ಬಂತು", "ಹಲ್ಲು ನೋವು", "ಹೊಲ ದೊಡ್ಡದು"]),
        ("ކަރު", "ކަރު ރިއްސާ", ["ކުރި އަރާ", "ކިރު ބޮއޭ"]),
        ("かき", "かきを食べる", ["かぎをかける"]),
    ],
)
async def test_other_vowels_make_another_word(
    plain: Memory, asked: str, found: str, others: list[str]
) -> None:
    session = plain.session("signs")
    for text in (*others, found):
        await plain.write(text, scope="user:signs")
        await session.append({"role": "user", "content": text})
    hits = [hit.entry.content for hit in await plain.search(asked, scope="user:signs", mode="lexical")]
    messages = [one.message.text for one in await session.search(asked, mode="lexical")]
    if asked != "かき":  # of Japanese each character is a word, and the first one is the same
        assert (hits, messages) == ([found], [found])
    assert (hits[0], messages[0]) == (found, found)


@pytest.mark.behaviour("D56")
@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("مُحَمَّد يسكن في دبي", "محمد"),
        ("إسماعيل يحب الشاي", "اسماعيل"),
        ("زارنا محمــد أمس", "محمد"),
        ("اجتماع في غرفة ٢٠٤", "204"),
        ("कमरा 204 में बैठक", "२०४"),
        ("שָׁלוֹם עולם", "שלום"),
        ("ёлка стоит в углу", "елка"),
        ("ΟΔΟΣ Ερμού 5", "οδός"),
        ("Anh ấy thích cà phê sữa đá", "ca phe"),
        ("ශ්‍රී ලංකාව", "ශ්රී"),
        ("ﾃｽﾄサーバーの設定", "テスト"),
        ("zero\u200bwidth space", "zerowidth"),
        ("🍕 party on Friday", "🍕"),
        ("👩‍👩‍👧 family plan", "👩‍👩‍👧"),
    ],
)
async def test_a_word_is_found_however_it_is_written(plain: Memory, written: str, asked: str) -> None:
    await plain.write(written, scope="user:signs")
    await plain.write("Some words in Latin letters", scope="user:signs")
    assert [hit.entry.content for hit in await plain.search(asked, scope="user:signs", mode="lexical")] == [
        written
    ]
