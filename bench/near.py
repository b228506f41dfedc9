"""What a checked write finds: `python -m bench.near FILE`, where FILE has the facts of
conversations (see `locomo`).

Pairs of short facts of which the second contradicts (`!`) or repeats (`=`) the first
should be found; ordinary facts about one person should seldom find another, and then
few. The thresholds of `memory.policies.near_duplicates` were chosen by both.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from memory.adapters.embedders.wordllama import WordLlamaEmbedder
from memory.policies.near_duplicates import SHOWN, content_words, in_common, near
from memory.ports.vector_scan import exact_cosines

PAIRS = """
Ada lives in Lisbon ! Ada lives in Porto
Ada lives in Lisbon ! Ada lives in Leeds
Ada lives in Lisbon ! Ada has moved to Porto and lives there now
Ben works at Siemens as an engineer ! Ben works at Bosch now
Ben works at Siemens ! Ben works at Google
Ben's favourite drink is tea ! Ben's favourite drink is coffee
The deadline for the report is Friday ! The deadline for the report is next Tuesday
The staging database runs on PostgreSQL 14 ! The staging database runs on PostgreSQL 16
Carla is vegetarian ! Carla eats meat again
Carla is single ! Carla got married to Tom in May
Dan's phone number is 555 0134 ! Dan's phone number is 555 0199
The meeting is at 10 am in room 4 ! The meeting was moved to 2 pm in room 7
Emma has two cats ! Emma has three cats since Pixel arrived
The API key is rotated every 90 days ! The API key is rotated every 30 days
Deployments happen on Thursdays ! Deployments happen on Mondays since March
Frank prefers dark mode ! Frank prefers light mode
Frank does not like spicy food ! Frank loves spicy food
Grace is learning Spanish ! Grace stopped learning Spanish
The build uses Gradle ! The build was migrated from Gradle to Bazel
Heidi drives a Volkswagen Golf ! Heidi sold her Golf and drives a Tesla
The project is called Falcon ! The project was renamed to Osprey
Ivan's birthday is on 3 March ! Ivan's birthday is on 13 March
The budget for marketing is 20,000 euros ! The budget for marketing is 35,000 euros
Judy wants short answers ! Judy wants long, detailed answers
Ken is allergic to peanuts ! Ken has no allergies
The team uses tabs for indentation ! The team uses four spaces for indentation
Lena's manager is Paul ! Lena's manager is Ruth since the reorganisation
The office is closed on Mondays ! The office is open on Mondays
Ada lives in Lisbon = Ada's home is in Lisbon
Ada prefers tea = Ada likes tea better than coffee
Ben is an engineer at Siemens = Ben works for Siemens as an engineer
Carla is vegetarian = Carla does not eat meat
The deadline is Friday = The report is due on Friday
Deployments happen on Thursdays = We deploy every Thursday
Emma has two cats = Emma owns two cats, Pixel and Dot
Frank prefers dark mode = Frank likes the dark theme more
Dan's phone number is 555 0134 = You can reach Dan by phone at 555 0134
Judy wants short answers = Judy asked for brief replies
The office is closed on Mondays = On Mondays the office is closed
Grace is learning Spanish = Grace takes Spanish lessons
The build uses Gradle = Gradle builds the project
Ken is allergic to peanuts = Ken has a peanut allergy
Ivan's birthday is on 3 March = Ivan was born on 3 March
The staging database runs on PostgreSQL 14 = Staging uses PostgreSQL 14 as its database
Lena reports to Paul = Lena's manager is Paul
The team writes its code in Go = Go is the team's programming language
Heidi has a golden retriever called Max = Heidi's dog Max is a golden retriever
Tom runs five kilometres every morning = Every morning Tom goes for a run of five kilometres
"""


def pairs() -> list[tuple[str, str]]:
    """The first text and the second of each."""
    return [
        (one, other)
        for line in PAIRS.strip().splitlines()
        for one, other in [line.replace(" ! ", " = ").split(" = ")]
    ]


async def found(texts: Sequence[str], *, by_meaning: bool) -> list[int]:
    """Of each text but the first, how many of those before it are near it, of which so
    many are shown at most.
    """
    vectors = await WordLlamaEmbedder().embed(texts)
    said = [content_words(text) for text in texts]
    counts: list[int] = []
    for at in range(1, len(texts)):
        cosines: Sequence[float | None] = (
            exact_cosines(vectors[at], vectors[:at]) if by_meaning else [None] * at
        )
        close = [near(in_common(said[at], said[before]), cosine) for before, cosine in enumerate(cosines)]
        counts.append(min(sum(close), SHOWN))
    return counts


async def measured(
    scopes: Sequence[Sequence[str]] = (), *, by_meaning: bool = True
) -> tuple[float, float, float]:
    """The part of the pairs that are found, the part of the ordinary facts that find
    another, and how many each of these finds.
    """
    of_pairs = [(await found(pair, by_meaning=by_meaning))[0] for pair in pairs()]
    ordinary = [count for texts in scopes for count in await found(texts, by_meaning=by_meaning)] or [0]
    return (
        sum(of_pairs) / len(of_pairs),
        sum(count > 0 for count in ordinary) / len(ordinary),
        sum(ordinary) / len(ordinary),
    )


def facts_of(file: Path) -> list[list[str]]:
    """What a file of conversations notes of each person, in order."""
    scopes: list[list[str]] = []
    for conversation in json.loads(file.read_text(encoding="utf-8")):
        people: dict[str, list[str]] = {}
        for session in conversation["observation"].values():
            for person, facts in session.items():
                people.setdefault(person, []).extend(fact for fact, *_ in facts)
        scopes += people.values()
    return scopes


async def main(file: Path) -> None:
    for by_meaning in (True, False):
        part, finding, each = await measured(facts_of(file), by_meaning=by_meaning)
        print(
            f"{'words and meaning' if by_meaning else 'words alone'}: pairs {part:.2f}, facts that find"
            f" another {finding:.2f}, found {each:.2f}"
        )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
