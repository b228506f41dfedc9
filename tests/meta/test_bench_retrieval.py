"""The benchmark of retrieval, from a file of conversations to its scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.locomo import Question, load, measured, scores
from bench.placed import opened
from bench.speed import of

ROOT = Path(__file__).resolve().parents[2]

SAID = {
    "harbour": [
        ("Ines", "The ferry to the island runs on Sundays.", None),
        ("Tom", "Good. Shall we take the bicycles?", None),
        ("Ines", "Yes, and look at this.", "a photo of a green lighthouse"),
        ("Tom", "My brother Paulo keeps bees behind the mill.", None),
    ],
    "kitchen": [
        ("Mara", "I bake bread with rye on Fridays.", None),
        ("Jon", "", "a picture of a burnt cake"),
        ("Mara", "The oven was repaired by a man from Braga.", None),
    ],
}
ASKED = {
    "harbour": [
        ("When does the ferry run?", 4, ["D1:1"]),
        ("What colour is the lighthouse?", 4, ["D1:3"]),
        ("Who keeps bees?", 1, ["D:2:1"]),
        ("What did Ines say?", 5, ["D1:1; D1:3"]),
        ("Who sails?", 5, []),
    ],
    "kitchen": [
        ("Which bread does Mara bake?", 4, ["D1:1"]),
        ("What happened to the cake?", 4, ["D1:2"]),
        ("Who repaired the oven?", 4, ["D1:3-D1:3"]),
    ],
}
"""Question, category, evidence: as people err when they write it, too."""

COMMAND = ["-m", "bench", "retrieval"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Each conversation in one session, the last turn of the first in a second one."""
    conversations = []
    for name, said in SAID.items():
        talk: dict[str, Any] = {}
        for number, (speaker, text, caption) in enumerate(said, 1):
            session, place = (2, 1) if (name, number) == ("harbour", 4) else (1, number)
            turn = {"speaker": speaker, "dia_id": f"D{session}:{place}", "text": text} | (
                {"blip_caption": caption} if caption else {}
            )
            talk.setdefault(f"session_{session}", []).append(turn)
            talk[f"session_{session}_date_time"] = f"1:56 pm on {session + 7} May, 2023"
        asked = [
            {"question": text, "category": category, "evidence": evidence}
            for text, category, evidence in ASKED[name]
        ]
        conversations.append({"sample_id": name, "conversation": talk, "qa": asked})
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(conversations))
    return path


@pytest.mark.backend("sqlite")
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "way"),
    [
        pytest.param(COMMAND, ["--" + way] if way else [], id=way or "told in order")
        for way in ("", "plain", "together")
    ]
    + [pytest.param(["bench/retrieval.py"], [], id="as a file")],
)
def test_what_was_said_is_written_asked_for_and_found(
    file: Path, tmp_path: Path, program: list[str], way: list[str]
) -> None:
    run, figures = tmp_path / "run.jsonl", tmp_path / "figures.json"
    command = [sys.executable, *program, "--data", str(file), "--out", str(run), "--json", str(figures), *way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "7 turns written" in done.stderr
    found = {line["qid"]: line["ids"] for line in map(json.loads, run.read_text().splitlines())}
    assert found.keys() == {
        "harbour/q0",
        "harbour/q1",
        "harbour/q2",
        "harbour/q3",
        "kitchen/q0",
        "kitchen/q1",
        "kitchen/q2",
    }
    assert found["harbour/q0"][0] == "harbour/D1:1"
    assert found["kitchen/q2"][0] == "kitchen/D1:3"
    assert way == ["--together"] or {turn.partition("/")[0] for turn in found["kitchen/q0"]} == {"kitchen"}
    (name,) = {figure["name"].partition(":")[0] for figure in json.loads(figures.read_text())["figures"]}
    measured = {
        figure["name"].partition(": ")[2]: figure["value"]
        for figure in json.loads(figures.read_text())["figures"]
    }
    assert measured["recall@10"] == 100
    assert measured["MRR"] > 80
    assert 0 < measured["a search, p50"] <= measured["a search, p95"]
    assert name.startswith("talks, default")
    assert f"| {name}: recall@5 | 100 % |" in done.stdout


def test_turns_have_their_place_and_what_a_picture_shows(file: Path) -> None:
    turns, questions = load(file)
    last = next(turn for turn in turns if turn.id == "harbour/D2:1")
    assert (last.session, last.number, last.speaker, last.at.isoformat()) == (
        2,
        1,
        "Tom",
        "2023-05-09T13:56:00+00:00",
    )
    assert [turn.text for turn in turns if turn.id in ("harbour/D1:3", "kitchen/D1:2")] == [
        "Yes, and look at this.\na photo of a green lighthouse",
        "a picture of a burnt cake",
    ]
    assert [question.evidence for question in questions[2:4]] == [
        ("harbour/D2:1",),
        ("harbour/D1:1", "harbour/D1:3"),
    ]


def test_scores_are_those_that_the_measures_are_defined_by() -> None:
    found = ["x", "a", "y", "z", "u", "v", "b"]
    assert measured(["a", "b"], found) == pytest.approx(
        {"recall@5": 0.5, "recall@10": 1.0, "nDCG@10": (0.63093 + 0.33333) / (1 + 0.63093), "MRR": 0.5},
        abs=1e-5,
    )
    assert measured(["a"], ["a", "a"])["nDCG@10"] == 1
    assert measured(["a"], [*map(str, range(20)), "a"])["MRR"] == 0
    questions = [
        Question("q1", "c", "?", 1, ("a",)),
        Question("q2", "c", "?", 2, ("b",)),
        Question("q3", "c", "?", 5, ("c",)),
    ]
    assert (
        scores(questions, {"q1": ["a"], "q3": []})["recall@5"] == 50
    )  # one that was not asked counts nought, an adversarial one nothing


@pytest.mark.backend("sqlite")
@pytest.mark.thorough
async def test_searches_are_timed_by_size_and_others_that_are_not_installed_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMORY_RIVALS", raising=False)
    figures = await of("here", opened(f"sqlite:///{tmp_path / 'memory.db'}"), 1, (20, 200), tmp_path)
    assert [figure.name for figure in figures] == [
        "here: search of 20, p50",
        "here: search of 200, p50",
        "here: search of a session of 1,000, p50",
        "here: search of 200 and a session of 1,000, p50",
        "search of 200, beside LangGraph's store in memory",
        "search of 200, beside mem0 on local Qdrant",
    ]
    assert all(figure.value for figure in figures[:4])
    assert all(
        figure.value is None and figure.note.startswith("not run, No module named") for figure in figures[4:]
    )
