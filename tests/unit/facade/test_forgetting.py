"""Forgetting never fails quietly: a scope given as an id is refused, and an erasure
says what it leaves and what it would reach.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import BlockingMemory, InvalidInput, LegalHoldActive, Scope
from tests.support.places import ONE_FILE, on
from tests.support.placings import PLACINGS, forget

PLACES = [ONE_FILE, on(PLACINGS[0])]


@pytest.fixture(params=PLACES)
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with BlockingMemory(request.param(tmp_path), embedder="none") as opened:
        yield opened
    forget(tmp_path)


CALLS: dict[str, Callable[[Any, str], object]] = {
    "get": lambda memory, text: memory.get(text),
    "delete": lambda memory, text: memory.delete(text),
    "update": lambda memory, text: memory.update(text, content="x"),
    "promote": lambda memory, text: memory.promote(text, "org:acme"),
    "invalidate": lambda memory, text: memory.entries.invalidate(text),
    "history": lambda memory, text: memory.entries.history(text),
    "where": lambda memory, text: memory.admin.where(text),
    "erase_user": lambda memory, text: memory.admin.erase_user(text),
    "erase_user, counted": lambda memory, text: memory.admin.erase_user(text, dry_run=True),
    "hold of a user": lambda memory, text: memory.admin.legal_holds.add(
        "case", reason="a lawsuit", user=text
    ),
    "hold of an entry": lambda memory, text: memory.admin.legal_holds.add(
        "case", reason="a lawsuit", entry_id=text
    ),
    "sessions.delete": lambda memory, text: memory.sessions.delete(text),
}


def test_the_text_of_a_scope_is_no_id_and_the_error_names_the_right_call(tmp_path: Path) -> None:
    with BlockingMemory(f"sqlite:///{tmp_path / 'one.db'}", embedder="none") as memory:
        kept = memory.write("likes tea", scope="user:ada")
        for text in ("user:ada", "session:s1", "object:ticket:t1"):
            for name, call in CALLS.items():
                with pytest.raises(InvalidInput) as refused:
                    call(memory, text)
                assert text in str(refused.value), name
                assert any(right in str(refused.value) for right in ("erase", "pass the id alone")), name
        assert memory.get(kept.id) is not None
        assert memory.admin.legal_holds.list() == []
        with pytest.raises(InvalidInput, match="not the scope of a user"):
            memory.admin.erase_user(Scope.org("acme"))


def test_a_user_whose_id_looks_like_a_scope_can_be_erased_and_held(tmp_path: Path) -> None:
    with BlockingMemory(f"sqlite:///{tmp_path / 'one.db'}", embedder="none") as memory:
        odd = Scope.user("user:ada")
        memory.write("of the odd one", scope=odd)
        memory.write("of Ada", scope="user:ada")
        memory.session("user:s", user="user:ada").append({"role": "user", "content": "hello"})
        memory.admin.legal_holds.add("case", reason="a lawsuit", user=odd)
        with pytest.raises(LegalHoldActive):
            memory.admin.erase_user(odd, dry_run=True)
        memory.admin.legal_holds.remove("case")
        erased = memory.admin.erase_user(odd)
        assert (erased.sessions, erased.entries) == (1, 1)
        assert [entry.content for entry in memory.retrieve("user:ada")] == ["of Ada"]
        memory.session("user:s").append({"role": "user", "content": "hello"})
        assert memory.sessions.delete("user:s")


def test_a_dry_run_counts_what_the_erasure_then_reaches(memory: Any) -> None:
    for number in range(3):
        memory.write(f"fact {number}", scope="user:ada")
    ended = memory.write("fact that has ended", scope="user:ada")
    memory.entries.invalidate(ended.id)
    memory.write("of her session", scope="session:s1")
    for name, user in (("s1", "ada"), ("s2", "ada"), ("s3", "bob")):
        memory.session(name, user=user).append(
            [{"role": "user", "content": "hello", "name": "ada"}, {"role": "user", "content": "hello"}]
        )

    would = memory.admin.erase("user:ada", dry_run=True)
    assert (would, sorted(would.sessions_left)) == (4, ["s1", "s2"])
    would_leave = {"entries": 1, "sessions_left": ["s1"], "documents": 0, "scopes": 1, "held": []}
    assert memory.admin.erase("session:s1", dry_run=True).to_dict() == would_leave
    user = memory.admin.erase_user("ada", dry_run=True)
    assert (user.sessions, user.messages, user.entries) == (2, 1, 4)
    tenant = memory.admin.erase_tenant(dry_run=True)
    assert sum(tenant.records["entries"].values()) == 5
    assert sum(tenant.records["sessions"].values()) == 3

    erased = memory.admin.erase("user:ada")
    assert (erased, sorted(erased.sessions_left)) == (would, ["s1", "s2"])
    assert copy.deepcopy(erased).to_dict() == erased.to_dict()
    assert "sessions_left" in repr(erased)
    assert memory.admin.erase_user("ada").to_dict() == {**user.to_dict(), "entries": 0}
    assert memory.admin.erase("user:ada").sessions_left == ()
    memory.admin.erase_tenant()
    assert memory.admin.erase_tenant(dry_run=True).records.get("entries") is None
