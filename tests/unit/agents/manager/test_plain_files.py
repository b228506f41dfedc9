"""Two small stores on plain files, for notes and as examples (E88 to E94)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memory import InvalidInput
from memory.agents.manager import JsonStore, MarkdownStore, MemoryManager, NamedStore
from memory.domain.errors import CorruptRecord


def found(store: Any, query: str, **more: Any) -> list[str]:
    return [entry.content for entry in store.search(query, **more)]


# -- one JSON file ---------------------------------------------------------------------


@pytest.mark.behaviour("E88", "E89", "E91", "AC-E43")
def test_a_file_is_read_by_the_next_store_and_touched_by_no_constructor(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "notes.json"
    store = JsonStore(path)
    assert found(store, "tea") == []
    assert list(tmp_path.iterdir()) == []
    made = store.add("Ada likes tea", {"n": 1})
    assert store.add("Ada likes tea", {"n": 2}) == made
    assert [(e.content, e.metadata) for e in JsonStore(path).search("TEA")] == [
        ("Ada likes tea", {"n": 1, "score": 1.0})
    ]
    (record,) = json.loads(path.read_text())
    assert (record["id"], record["content"], record["metadata"]) == (made, "Ada likes tea", {"n": 1})
    assert path.read_text().startswith("[\n  {\n"), "a hand may edit it"
    assert [file.name for file in path.parent.iterdir()] == ["notes.json"]


@pytest.mark.behaviour("E91", "AC-E43")
def test_a_store_without_a_file_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = JsonStore()
    store.add("tea")
    assert found(store, "tea") == ["tea"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("made", "glob"), [(lambda: JsonStore("notes.json"), "*.json"), (lambda: MarkdownStore("notes"), "*.md")]
)
def test_a_relative_path_stays_where_it_was_when_the_process_changes_its_folder(
    made: Callable[[], Any], glob: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    store = made()
    store.add("tea")
    monkeypatch.chdir(tmp_path / "there")
    store.add("coffee")
    assert (found(store, "tea"), found(store, "coffee")) == (["tea"], ["coffee"])
    assert list((tmp_path / "there").iterdir()) == []
    assert list((tmp_path / "here").rglob(glob))


@pytest.mark.behaviour("E88")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("notes", "notes.json"),
        ("../weird/name", "__weird_name.json"),
        ("a b", "a_b.json"),
        ("...", "_.json"),
        (".für", "f_r.json"),
    ],
)
def test_a_name_is_a_file_in_the_home_folder_and_nowhere_else(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    JsonStore.at_home(name).add("tea")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")] == [
        f".memory-tiers/{file}"
    ]
    with pytest.raises(InvalidInput, match="name: must not be"):
        JsonStore.at_home(" ")


@pytest.mark.behaviour("E91", "AC-E43")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json{", "not JSON"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        ("{}", "must be a list of records, not dict"),
        ('[{"foo": 1}]', "record 0 .*content that is text"),
        (
            '[{"content": "x"}, {"content": "x", "metadata": "oops"}]',
            "record 1 .*metadata must be an object, not str",
        ),
        ('[{"content": "x", "created_at": "soon"}]', "created_at must be a moment"),
    ],
)
def test_a_file_that_a_hand_broke_says_where_and_is_left_alone(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(text)
    with pytest.raises(CorruptRecord, match=said):
        JsonStore(path).search("x")
    with pytest.raises(CorruptRecord, match=said):
        JsonStore(path).add("y")
    with pytest.raises(CorruptRecord, match="Correct the file by hand"):
        JsonStore(path).search("x")
    assert path.read_text() == text


@pytest.mark.behaviour("E21", "E88")
@pytest.mark.parametrize("limit", [0, -1, True, 1_001, "3"])
def test_a_limit_that_is_none_is_refused(limit: Any, tmp_path: Path) -> None:
    for store in (JsonStore(), MarkdownStore(tmp_path)):
        store.add("tea")
        with pytest.raises(InvalidInput, match="limit: must be"):
            store.search("tea", limit=limit)


@pytest.mark.behaviour("E89", "E91", "AC-E43")
def test_what_a_hand_wrote_needs_no_more_than_a_content(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text('[{"content": "by hand", "metadata": null}]')
    store = JsonStore(path)
    assert store.add("by hand") == JsonStore(path).add("by hand")
    store.add("by program")
    assert found(store, "by") == ["by program", "by hand"]


@pytest.mark.behaviour("E89", "E90")
def test_the_more_words_of_the_query_the_better_then_the_newer() -> None:
    store = JsonStore()
    for text in ("tea", "tea and milk", "MILK with Käse", "rum", "milk and tea"):
        store.add(text)
    assert found(store, "tea, milk? tea!") == ["milk and tea", "tea and milk", "MILK with Käse"]
    assert found(store, "käse") == ["MILK with Käse"]
    assert found(store, "tea milk", limit=1) == ["milk and tea"]
    assert found(store, "?!") == found(store, "") == found(store, "te") == []
    for wrong in ("", " \n", 3):
        with pytest.raises(InvalidInput, match="content"):
            store.add(wrong)  # type: ignore[arg-type]


@pytest.mark.behaviour("E90")
@pytest.mark.parametrize("query", [None, 3, "a\0", "\ud800"], ids=repr)
def test_a_query_that_is_no_text_is_refused(query: Any, tmp_path: Path) -> None:
    for store in (JsonStore(), MarkdownStore(tmp_path)):
        with pytest.raises(InvalidInput, match="query"):
            store.search(query)


@pytest.mark.behaviour("E90", "E93")
def test_a_word_is_whole_with_its_marks_however_it_is_written(tmp_path: Path) -> None:
    store = JsonStore()
    for text in ("हद", "हिन्दी", "cafe\u0301", "snake_case"):
        store.add(text)
    assert found(store, "हिन्दी") == ["हिन्दी"]
    assert found(store, "caf\u00e9") == ["cafe\u0301"]
    assert found(store, "cafe") == found(store, "snake") == []
    store.add("\u2615\ufe0f hot")
    assert found(store, "\u2764\ufe0f") == [], "a mark on what is no letter is no word"
    notes = MarkdownStore(tmp_path)
    assert (notes.add("हिन्दी"), notes.add("हनद")) == ("हिन्दी.md", "हनद.md")


@pytest.mark.behaviour("E92", "AC-E43")
def test_many_at_once_are_all_kept(tmp_path: Path) -> None:
    for store in (JsonStore(tmp_path / "notes.json"), MarkdownStore(tmp_path)):
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(store.add, [f"fact {n}\nline {n}" for n in range(10)]))
        assert len(store.search("fact", limit=100)) == 10


@pytest.mark.behaviour("E92")
def test_stores_on_one_path_keep_what_each_of_them_adds(tmp_path: Path) -> None:
    path, texts = tmp_path / "notes.json", [f"Tea\nfact {n}" for n in range(60)]

    def add(text: str) -> None:
        JsonStore(path).add(text)
        MarkdownStore(tmp_path).add(text)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, texts))
    assert len(JsonStore(path).search("tea", limit=100)) == len(texts)
    (note,) = found(MarkdownStore(tmp_path), "tea")
    assert sorted(note.splitlines()[1:]) == sorted(text.splitlines()[1] for text in texts)


@pytest.mark.behaviour("E92")
def test_a_manager_uses_them_on_any_event_loop(tmp_path: Path) -> None:
    stores = [
        NamedStore("json", JsonStore(tmp_path / "n.json"), writable=True),
        NamedStore("md", MarkdownStore(tmp_path), writable=True),
    ]
    manager = MemoryManager(stores)
    asyncio.run(manager.add("Ada likes tea", {"n": 1}))
    hits = asyncio.run(manager.search("tea"))
    assert [(hit.store_name, hit.content) for hit in hits] == [
        ("json", "Ada likes tea"),
        ("md", "Ada likes tea"),
    ]


# -- a folder of Markdown --------------------------------------------------------------


@pytest.mark.behaviour("E93", "AC-E45")
def test_what_begins_alike_is_one_note(tmp_path: Path) -> None:
    store = MarkdownStore(tmp_path)
    assert store.add("Python is great\nFast prototyping") == "python-is-great.md"
    assert store.add("Python is great\nBut it has a GIL.") == "python-is-great.md"
    note = tmp_path / "notes" / "python-is-great.md"
    assert note.read_text() == "Python is great\nFast prototyping\nBut it has a GIL.\n"
    store.add("Python is great")
    assert note.read_text().count("\n") == 3
    assert store.add("# User preferences\n- tea") == "user-preferences.md"
    assert store.add("!!!???").startswith("entry-")
    assert len(store.add("x" * 400)) == 53
    assert found(store, "gil") == ["Python is great\nFast prototyping\nBut it has a GIL."]
    note.write_text("by hand")
    assert found(store, "hand") == ["by hand"]


@pytest.mark.behaviour("E92", "E93", "AC-E45")
def test_notes_that_have_no_word_in_their_first_line_are_each_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_795_799_792_114_000_000)
    store = MarkdownStore(tmp_path)
    with ThreadPoolExecutor(10) as pool:
        names = list(pool.map(store.add, [f"{'!' * n}\ntext {n}" for n in range(1, 11)] + ["?", "???"]))
    assert len(set(names)) == 12
    assert all(name.startswith("entry-17957997921") for name in names)
    assert len(store.search("text", limit=100)) == 10
    assert {path.read_text() for path in (tmp_path / "notes").iterdir()} >= {"?\n", "???\n"}


@pytest.mark.behaviour("E93", "AC-E45")
def test_stores_of_different_names_do_not_see_each_other(tmp_path: Path) -> None:
    one, other = MarkdownStore(tmp_path, "one"), MarkdownStore(tmp_path, "../other")
    one.add("tea")
    other.add("rum")
    assert (found(one, "rum"), found(other, "tea")) == ([], [])
    other_folder, one_folder = sorted(path.name for path in tmp_path.iterdir())
    assert (other_folder[:8], one_folder) == ("__other-", "one")
    with pytest.raises(InvalidInput, match="namespace"):
        MarkdownStore(tmp_path, "..")


@pytest.mark.behaviour("E93", "AC-E45")
def test_no_two_namespaces_are_taken_for_one(tmp_path: Path) -> None:
    names = ["a_b", "a/b", "a b", ".a_b", "日本", "中国", "café", "cafè", "..a"]
    stores = [MarkdownStore(tmp_path, name) for name in names]
    for name, store in zip(names, stores, strict=True):
        store.add(f"of {name}")
    assert [found(store, "of") for store in stores] == [[f"of {name}"] for name in names]
    assert len(list(tmp_path.iterdir())) == len(names)
    assert found(MarkdownStore(tmp_path, "a/b"), "of") == ["of a/b"]


@pytest.mark.behaviour("E93")
def test_of_two_long_first_lines_that_begin_alike_neither_is_lost(tmp_path: Path) -> None:
    store = MarkdownStore(tmp_path)
    begins = "The user prefers dark mode in the editor and also at"
    for text in (f"{begins} night", f"{begins} noon", f"# {begins} NIGHT", f"{begins} sea\nbut not ashore"):
        assert store.add(text) == "the-user-prefers-dark-mode-in-the-editor-and-also.md"
    assert found(store, "noon") == [f"{begins} night\n{begins} noon\n{begins} sea\nbut not ashore"]


# -- another way to search -------------------------------------------------------------


class Last:
    """Finds what was added last, whatever is asked."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def index(self, entry_id: str, content: str) -> None:
        self.ids.append(entry_id)

    def search(self, query: str, limit: int) -> Sequence[tuple[str, float]]:
        return [("gone", 9.0), *((one, 0.5) for one in self.ids[::-1])]


@pytest.mark.behaviour("E94")
def test_a_strategy_is_told_what_is_added_and_decides_what_is_found(tmp_path: Path) -> None:
    for store in (JsonStore(strategy=Last()), MarkdownStore(tmp_path, strategy=Last())):
        for text in ("tea", "rum", "rum", "gin"):
            store.add(text)
        assert [(entry.content, (entry.metadata or {})["score"]) for entry in store.search("x", limit=2)] == [
            ("gin", 0.5),
            ("rum", 0.5),
        ]
