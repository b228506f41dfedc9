"""How well relevance tells answers from nonsense, and its constants: `python -m bench
relevance`, with `--write` to store the constants.

Each question of the open conversations is asked to its own conversation, and to others,
which cannot answer it; unrelated questions are asked to all. An answer is a hit that
the file names as evidence. The constants of a conversation's figures are fitted without
that conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from bench.locomo import ADVERSARIAL, Question, Turn, load
from bench.measure import Figure, report
from bench.placed import opened
from bench.retrieval import AT_ONCE, OPEN, Way
from memory import Memory
from memory.domain.search_results import FoundEntry
from memory.facade.runtime.access import engine_of
from memory.policies.question import read
from memory.policies.ranking import calibration
from memory.policies.ranking.calibration import LEXICAL, Calibration, Constants, EmbedderCalibration
from memory.policies.ranking.unrelated_texts import UNRELATED_TEXTS
from memory.ports.embedder import Embedder
from memory.ports.text import query_words, words

Mode = Literal["hybrid", "lexical", "semantic"]
Numbers = npt.NDArray[np.float64]

NOBODY = "nobody"
"""The speaker of turns whose speaker was taken out."""
ANSWERS = 10
"""So many hits of a question to its own conversation are looked at."""
NONSENSE = 0.2
"""The relevance under which nonsense is to stay."""
QUIET = 0.95
"""The share of the nonsense that is to stay under it."""
WEIGHTS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""What one nonsense hit weighs in a fit, in answers. The first that keeps nonsense
quiet is taken.
"""
UNRELATED_QUESTIONS = (
    "How do I bake sourdough bread?",
    "quantum chromodynamics",
    "What is the capital of Mongolia?",
    "How does a diesel engine work?",
    "Explain the rules of cricket",
    "Who won the battle of Hastings?",
    "What causes tides in the ocean?",
    "Which vitamins are in broccoli?",
    "How many moons does Jupiter have?",
    "python list comprehension syntax",
    "What is the boiling point of ethanol?",
    "When was the Magna Carta signed?",
    "How do I configure nginx as a reverse proxy?",
    "What does the mitochondrion do?",
    "Which countries border Switzerland?",
    "How is cement made?",
    "Explain eigenvalues",
    "What is a mortgage amortisation schedule?",
    "Who composed the Brandenburg concertos?",
    "How tall is Mount Kilimanjaro?",
    "symptoms of vitamin D deficiency",
    "What is the difference between TCP and UDP?",
    "How do black holes form?",
    "Which alloy is used in aircraft wings?",
    "What is the population of Brazil?",
    "When did the Roman Empire fall?",
    "How do I remove rust from cast iron?",
    "What is the plot of Hamlet?",
    "kubernetes pod eviction policy",
    "How are semiconductors doped?",
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A hit of a question to a conversation, and what speaks for it."""

    of: str | None
    """The conversation that the question is about; None for unrelated questions."""
    asked: str
    """The conversation that was asked."""
    place: int
    right: bool
    has_names: bool
    """Whether names and speakers stand in the texts."""
    shares_word: bool
    above: float
    """The mean of its cosines over that of unrelated texts."""
    share: float

    @property
    def is_nonsense(self) -> bool:
        """Whether it is the best of a conversation that cannot answer."""
        return self.of != self.asked and self.place == 1

    @property
    def is_best_answer(self) -> bool:
        """Whether it is the top hit, and right."""
        return self.right and self.place == 1


@dataclass(frozen=True, slots=True)
class Corpus:
    """Turns and the questions about them."""

    name: str
    turns: Sequence[Turn]
    questions: Sequence[Question]
    way: Way = Way()  # noqa: RUF009 - frozen
    has_names: bool = True


def without_names(turns: Sequence[Turn], questions: Sequence[Question]) -> tuple[list[Turn], list[Question]]:
    """Return the same with speakers and their names taken out of every text."""
    names = sorted({turn.speaker for turn in turns})
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})(?:['’]s)?\b", re.IGNORECASE)

    def without(text: str) -> str:
        return re.sub(r"\s+", " ", pattern.sub("", text)).strip()

    anonymous = [replace(turn, text=without(turn.text), speaker=NOBODY) for turn in turns]
    return anonymous, [replace(question, text=without(question.text)) for question in questions]


async def gather(memory: Memory, embedder: Embedder, corpus: Corpus, mode: Mode, rivals: int) -> list[Hit]:
    """Ask every question to its conversation and to so many others, and the unrelated
    ones to all.
    """
    conversations = list(dict.fromkeys(turn.conversation for turn in corpus.turns))
    background = np.array(
        [np.frombuffer(vector, "<f4") for vector in await embedder.embed(UNRELATED_TEXTS)]
    ).mean(axis=0)
    turn_of = dict(await _written(memory, corpus))
    asked: list[tuple[str, str | None, frozenset[str], list[str]]] = [
        (text, None, frozenset(), conversations) for text in UNRELATED_QUESTIONS
    ]
    for number, question in enumerate(
        one for one in corpus.questions if one.category != ADVERSARIAL and one.text
    ):
        others = [name for name in conversations if name != question.conversation]
        some = [others[(number + step) % len(others)] for step in range(min(rivals, len(others)))]
        asked.append(
            (
                question.text,
                question.conversation,
                frozenset(question.evidence),
                [question.conversation, *some],
            )
        )
    found: list[Hit] = []
    for text, conversation, evidence, places in asked:
        [vector] = await embedder.embed([read(text).embedded])
        baseline = float(np.frombuffer(vector, "<f4") @ background) if vector else 0.0
        for place in places:
            limit = ANSWERS if place == conversation else 1
            hits = await memory.search(
                text, scope=corpus.way.scope(place), limit=limit, mode=mode, explain=True
            )
            for rank, hit in enumerate(hits, 1):
                right = place == conversation and turn_of[hit.id].id in evidence
                found.append(
                    _hit(
                        hit,
                        turn_of[hit.id],
                        text,
                        conversation,
                        place,
                        rank,
                        right,
                        baseline,
                        corpus.has_names,
                    )
                )
    for name in conversations:
        await memory.admin.erase(corpus.way.scope(name))
    return found


async def _written(memory: Memory, corpus: Corpus) -> list[tuple[str, Turn]]:
    given, written = corpus.way.given(corpus.turns), list[tuple[str, Turn]]()
    for start in range(0, len(given), AT_ONCE):
        some = given[start : start + AT_ONCE]
        drafts = [corpus.way.draft(turn) for turn in some]
        drafts = [
            draft.model_copy(update={"speaker": None}) if draft.speaker == NOBODY else draft
            for draft in drafts
        ]
        entries = await memory.write_many(drafts)
        written += [(entry.id, turn) for entry, turn in zip(entries, some, strict=True)]
    await memory.admin.sweep()
    return written


def _hit(
    hit: FoundEntry,
    turn: Turn,
    text: str,
    of: str | None,
    asked: str,
    place: int,
    right: bool,
    baseline: float,
    has_names: bool,
) -> Hit:
    evidence = hit.explanation["relevance"]
    cosines = [evidence.get(name) for name in ("cosine", "cosine_with_neighbours")]
    above = sum(cosines) / 2 - baseline if None not in cosines else 0.0
    shares = not set(query_words(text)).isdisjoint(words(turn.text))
    return Hit(of, asked, place, right, has_names, shares, above, evidence["lexical_share"])


# -- fitting ---------------------------------------------------------------------------


def fitted(hits: Iterable[Hit], mode: Mode, semantic: Constants | None = None) -> Constants:
    """Fit the constants on answers and nonsense, with the least weight of nonsense that
    keeps named nonsense quiet.

    Where `semantic` is given, those of a semantic search, the larger of both values
    counts, as in a search.
    """
    used = [hit for hit in hits if hit.right or hit.is_nonsense]
    named = [hit for hit in used if hit.is_nonsense and hit.has_names]
    for weight in WEIGHTS:
        constants = _logistic(used, mode, weight)
        if float((predicted([constants, semantic], named) < NONSENSE).mean()) >= QUIET:
            break
    return constants


def predicted(constants: Sequence[Constants | None], hits: Sequence[Hit]) -> Numbers:
    """Return the relevance of each hit: the largest by any of the constants."""
    above, share = np.array([hit.above for hit in hits]), np.array([hit.share for hit in hits])
    each = [one.offset + one.semantic * above + one.lexical * share for one in constants if one is not None]
    return np.asarray(1 / (1 + np.exp(-np.max(each, axis=0))))


def _logistic(hits: Sequence[Hit], mode: Mode, weight: float) -> Constants:
    """Fit by Newton's method, with a slight ridge."""
    columns = [np.array([hit.above for hit in hits])] * (mode != "lexical") + [
        np.array([hit.share for hit in hits])
    ] * (mode != "semantic")
    table = np.stack([np.ones(len(hits)), *columns], axis=1)
    right = np.array([float(hit.right) for hit in hits])
    weights = np.where(right > 0, 1.0, weight)
    solution, ridge = np.zeros(table.shape[1]), np.eye(table.shape[1]) * 1e-4 * weights.sum()
    ridge[0, 0] = 0.0
    for _ in range(100):
        likely = 1 / (1 + np.exp(-table @ solution))
        gradient = table.T @ (weights * (likely - right)) + ridge @ solution
        step = np.linalg.solve((table.T * (weights * likely * (1 - likely))) @ table + ridge, gradient)
        solution = solution - step
        if float(np.abs(step).max()) < 1e-9:
            break
    offset, *slopes = (round(float(value), 3) for value in solution)
    semantic = slopes.pop(0) if mode != "lexical" else 0.0
    return Constants(offset, semantic, slopes.pop(0) if slopes else 0.0)


def left_out(
    hits: Sequence[Hit], trained_on: Sequence[Hit], mode: Mode, by_meaning: Sequence[Hit] = ()
) -> list[tuple[Hit, float]]:
    """Return the relevance of each hit, with constants fitted without its conversation.
    `by_meaning`: hits of semantic searches.
    """
    found: list[tuple[Hit, float]] = []
    for name in sorted({hit.of or hit.asked for hit in hits}):
        rest = [hit for hit in by_meaning if name not in (hit.of, hit.asked)]
        semantic = fitted(rest, "semantic") if rest else None
        constants = fitted([hit for hit in trained_on if name not in (hit.of, hit.asked)], mode, semantic)
        tested = [hit for hit in hits if name == (hit.of or hit.asked)]
        found += zip(tested, map(float, predicted([constants, semantic], tested)), strict=True)
    return found


def auc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """The probability that an answer has a higher value than nonsense; ties count half."""
    ordered = np.sort(np.array(wrong))
    below, up_to = np.searchsorted(ordered, right, "left"), np.searchsorted(ordered, right, "right")
    return float((below + up_to).mean() / 2 / len(ordered))


# -- figures ---------------------------------------------------------------------------

ASKED = {"as they are": 0.95, "names and speakers removed": 0.85}
"""The AUC that is asked for, by corpus."""


def figures(name: str, judged: Sequence[tuple[Hit, float]], *, has_targets: bool) -> list[Figure]:
    """How well relevance tells right top hits from the best hits of conversations that
    cannot answer.
    """
    right = [value for hit, value in judged if hit.is_best_answer]
    others = [value for hit, value in judged if hit.is_nonsense and hit.of is not None]
    nonsense = [value for hit, value in judged if hit.is_nonsense]
    title = f"{name}: AUC of {len(right)} right top hits against {len(others)} best hits of others"
    told = [Figure(title, auc(right, others), "", ASKED.get(name), at_least=True)]
    for kind, apart in {
        "right top hits": [value for hit, value in judged if hit.is_best_answer and not hit.shares_word],
        "right hits among ten": [value for hit, value in judged if hit.right and not hit.shares_word],
    }.items():
        if apart:
            told.append(
                Figure(
                    f"{name}: AUC of {len(apart)} {kind} that share no content word",
                    auc(apart, others),
                    "",
                    0.75,
                    at_least=True,
                )
            )
    quiet = sum(value < NONSENSE for value in nonsense) / len(nonsense)
    chosen = sum(value >= 0.5 for value in right), sum(value >= 0.5 for value in nonsense)
    told.append(Figure(f"{name}: nonsense under {NONSENSE}", 100 * quiet, "%", 100 * QUIET, at_least=True))
    told.append(Figure(f"{name}: precision of the threshold 0.5", 100 * chosen[0] / max(sum(chosen), 1), "%"))
    told.append(Figure(f"{name}: recall of the threshold 0.5", 100 * chosen[0] / max(len(right), 1), "%"))
    return told if has_targets else [replace(one, target=None) for one in told]


def corpora() -> tuple[list[Corpus], Corpus]:
    """The conversations as they are and without names, and their turns as facts that
    stand alone.
    """
    turns, questions = load(OPEN)
    told = [
        Corpus("as they are", turns, questions),
        Corpus("names and speakers removed", *without_names(turns, questions), has_names=False),
    ]
    return told, Corpus("plain facts", turns, questions, Way("plain facts", plain=True))


async def calibrate(
    folder: Path, rivals: int, embedder: str | None = None
) -> tuple[list[Figure], dict[Mode, Calibration], str]:
    """Measure and fit. Returns the figures, the constants by mode, and the embedder's
    fingerprint.
    """
    told: list[Figure] = []
    constants: dict[Mode, Calibration] = {}
    in_order, plain = corpora()
    async with opened(f"sqlite:///{folder / 'relevance.db'}", embedder) as memory:
        used = engine_of(memory).embeddings._embedder
        assert used is not None, "relevance is measured with an embedder"
        fingerprint = str(await used.fingerprint())
        modes: tuple[Mode, ...] = ("lexical", "semantic", "hybrid")
        by_meaning: tuple[list[Hit], list[Hit]] = [], []
        for mode in modes:
            found = {
                corpus.name: await gather(memory, used, corpus, mode, rivals) for corpus in (*in_order, plain)
            }
            together = [hit for corpus in in_order for hit in found[corpus.name]]
            alone = found[plain.name]
            semantic = constants["semantic"] if mode == "hybrid" else None
            inside = fitted(together, mode, None if semantic is None else semantic.in_conversation)
            constants[mode] = Calibration(
                inside, fitted(alone, mode, None if semantic is None else semantic.alone)
            )
            for corpus in (*in_order, plain):
                trained_on, by_cosine = (
                    (alone, by_meaning[1]) if corpus is plain else (together, by_meaning[0])
                )
                judged = left_out(found[corpus.name], trained_on, mode, by_cosine if mode == "hybrid" else ())
                told += [
                    replace(one, name=f"{mode}, {one.name}")
                    for one in figures(corpus.name, judged, has_targets=mode == "hybrid")
                ]
            if mode == "semantic":
                by_meaning = together, alone
            _say(f"{mode}: {constants[mode]}")
    return told, constants, fingerprint


def written(constants: Mapping[Mode, Calibration], fingerprint: str) -> str:
    """Return `calibrated.py` with these constants; those of other embedders stay."""
    embedders = {
        **calibration.EMBEDDERS,
        fingerprint: EmbedderCalibration(constants["hybrid"], constants["semantic"]),
    }
    head, mark, _ = Path(str(calibration.__file__)).read_text().partition("# written from here on\n")
    lines = [
        f"LEXICAL = {constants.get('lexical', LEXICAL)!r}",
        "",
        "EMBEDDERS: Mapping[str, EmbedderCalibration] = {",
    ]
    lines += [f"    {name!r}: {embedder!r}," for name, embedder in sorted(embedders.items())]
    return head + mark + "\n".join([*lines, "}", ""])


async def relevance(folder: Path, rounds: int) -> list[Figure]:
    """The figures alone."""
    if not OPEN.exists():
        return [Figure("relevance", None, "", note="the open conversations are not beside this clone")]
    return (await calibrate(folder, 4))[0]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench relevance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--write", action="store_true", help="store the constants in memory/policies/ranking/calibration.py"
    )
    parser.add_argument(
        "--rivals",
        type=int,
        default=4,
        choices=range(1, 5),
        help="so many other conversations are asked each question",
    )
    parser.add_argument(
        "--embedder", metavar="NAME", help="instead of the bundled one: its name, or the folder of an encoder"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    arguments = parser.parse_args(given)
    if not OPEN.exists():
        parser.error(f"the open conversations are not beside this clone ({OPEN.name})")
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        told, constants, fingerprint = asyncio.run(
            calibrate(Path(folder), arguments.rivals, arguments.embedder)
        )
    if arguments.write:
        Path(str(calibration.__file__)).write_text(written(constants, fingerprint))
    report(told, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
