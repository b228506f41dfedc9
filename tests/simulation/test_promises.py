"""What several records have promised together, on histories written out by hand: each
promise is broken once, and kept in odd but right ways.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tests.simulation.checker import check
from tests.simulation.history import Act, Derived, Erased, Event, History, Told
from tests.simulation.links import LinkAct, LinkSight

LINK = ("acme", "ida", "supports", "idb")


def _history(*names: str) -> History:
    history = History(lambda: 0.0)
    for name in names:
        history.register(name, "acme", "user:ada")
        history.names[f"id{name}"] = name
        history.note(Event(name, Act.CREATE, f"m{name}", 0, 1, by=f"write {name}"))
    return history


def _kinds(history: History) -> list[str]:
    return [v.kind for v in check(history)]


def _compacted(history: History, *, stored: bool) -> History:
    """A compaction of `a` whose outcome nobody learned; `a` was seen gone at 5, and the
    summary at 7 where it was `stored`.
    """
    history.register("c", "acme", "user:ada")
    history.derived.append(Derived("c", ("a",), "compact", 2))
    history.note(Event("a", Act.DROP, "ma", 2, maybe=True, by="compact"))
    history.note(Event("c", Act.CREATE, "mc", 2, maybe=True, by="compact"))
    history.note(Event("a", Act.READ, None, 4, 5))
    history.note(Event("c", Act.READ, "mc" if stored else None, 6, 7))
    return history


def test_sources_are_gone_only_once_their_summary_is_there() -> None:
    assert _kinds(_compacted(_history("a"), stored=True)) == []
    assert _kinds(_compacted(_history("a"), stored=False)) == ["lost"]
    excused = _compacted(_history("a"), stored=False)
    excused.note(Event("a", Act.DELETE, None, 1.2, maybe=True, by="delete"))
    assert _kinds(excused) == []


def test_a_summary_of_erased_sources_does_not_come_any_more() -> None:
    history = _history("a")
    history.register("c", "acme", "user:ada")
    history.note(Event("c", Act.FORBID, None, 2, 3))
    assert _kinds(history) == []
    history.note(Event("c", Act.CREATE, "mc", 4, 5))
    assert _kinds(history) == ["order"]


def test_an_erasure_reaches_what_was_made_elsewhere_of_what_was_there() -> None:
    history = _history("a")
    for name in ("a>org:o1", "b", "b>org:o1", "c", "c>org:o1"):
        history.register(name, "acme", "user:bob" if name == "b" else "org:o1")
    history.derived.append(Derived("c", ("a",), "compact", 2, away=False))
    assert history.made_of("acme", "user:ada") == {"a>org:o1", "c", "c>org:o1"}


def _promoted_away(said: str) -> History:
    """`a` was edited to `edit`, promoted and taken away by it; the copy is seen to say
    `said`.
    """
    history = _history("a")
    history.note(Event("a", Act.UPDATE, "edit", 2, 3, by="update"))
    return _promote_away(history, said)


def _promote_away(history: History, said: str) -> History:
    """The copy of `a` is seen to say `said`, and `a` is gone."""
    history.register("a>org:o1", "acme", "org:o1")
    history.derived.append(Derived("a>org:o1", ("a",), "promote", 4))
    history.note(Event("a>org:o1", Act.PROMOTE, None, 4, 5, by="promote"))
    history.note(Event("a>org:o1", Act.READ, said, 8, 9))
    history.note(Event("a", Act.DROP, None, 4, 6, maybe=True, by="promote"))
    history.note(Event("a", Act.READ, None, 7, 8))
    return history


def test_a_copy_whose_original_it_took_says_its_last_text() -> None:
    assert _kinds(_promoted_away("edit")) == []
    assert _kinds(_promoted_away("ma")) == ["lost"]


def test_a_copy_says_what_its_original_said_in_its_last_life() -> None:
    """`a` was deleted after its edit, and written anew under its key: seed 119828 took
    the text of the former life for its last one.
    """

    def reborn(said: str) -> History:
        history = _promoted_away(said)
        history.note(Event("a", Act.DELETE, None, 3.1, 3.2, by="delete"))
        history.note(Event("a", Act.PROMOTE, "again", 3.3, 3.4, by="keyed write", keyed=True))
        return history

    assert _kinds(reborn("again")) == []
    assert _kinds(reborn("edit")) == ["lost"]


def test_a_write_under_a_key_that_lives_leaves_what_its_original_said() -> None:
    history = _promoted_away("again")
    history.note(Event("a", Act.PROMOTE, "again", 3.3, 3.4, by="keyed write", keyed=True))
    assert "lost" in _kinds(history)


def test_what_the_first_write_under_a_key_said_is_what_its_original_may_have_said() -> None:
    """Seed 914509378: of a first write that revives, and one of another text whose
    outcome nobody learned, the judge forgot the first.
    """

    def promoted_away(said: str) -> History:
        history = _history()
        history.register("a", "acme", "user:ada")
        history.names["ida"] = "a"
        history.note(Event("a", Act.PROMOTE, "ma", 0, 1, by="keyed write", keyed=True))
        history.note(Event("a", Act.CREATE, "other", 2, maybe=True, by="write batch", keyed=True))
        return _promote_away(history, said)

    assert _kinds(promoted_away("ma")) == []
    assert _kinds(promoted_away("other")) == ["lost"], (
        "on what is live a write of another text changes nothing"
    )


def _told(*values: str) -> Told:
    return Told("a", 6, 7, "history", values)


def test_a_past_has_every_acknowledged_version_in_order_and_none_of_another_life() -> None:
    def after(*values: str, gone: bool = False, retired: bool = False) -> list[str]:
        history = _history("a")
        history.note(Event("a", Act.UPDATE, "one", 2, 2.5))
        history.note(Event("a", Act.UPDATE, "two", 3, 3.5))
        if retired:
            history.note(Event("a", Act.RETIRE, None, 4, 4.5, hides=(90, 90)))
        if gone:
            history.note(Event("a", Act.DELETE, None, 5, 5.5))
        history.pasts.append(_told(*values))
        return _kinds(history)

    assert after("ma", "one", "two") == []
    assert after("ma", "two") == ["wrong past"]
    assert after("ma", "two", "one") == ["wrong past"]
    assert after("ma", "one", "two", retired=True) == ["wrong past"]
    assert after("ma", "one", "two", "two", retired=True) == []
    assert after("two", gone=True) == ["wrong past"]
    assert after("other", gone=True) == []


def test_an_entry_goes_onward_only_unless_it_was_deleted_between() -> None:
    history = _history("a")
    history.sent_on.add("a")
    history.tiers = [Told("a", 2, 3, "get", tier="mid"), Told("a", 4, 5, "get", tier="short")]
    assert _kinds(history) == ["went back"]
    history.tiers[1] = Told("a", 2.5, 5, "get", tier="short")  # at the same time: either came first
    assert _kinds(history) == []
    history.tiers[1] = Told("a", 4, 5, "get", tier="short")
    history.note(Event("a", Act.DELETE, None, 3.2, maybe=True))
    assert _kinds(history) == []


def test_what_nobody_moved_is_in_one_tier_in_later_lives_too() -> None:
    history = _history("a")
    history.tiers = [Told("a", 2, 3, "get", tier="short"), Told("a", 4, 5, "get", tier="long")]
    history.note(Event("a", Act.DELETE, None, 3.2, 3.4))
    assert _kinds(history) == ["went back"]
    history.sent_on.add("acme/user:ada")
    assert _kinds(history) == []


def test_an_erasure_counts_what_was_there() -> None:
    def counted(number: int, *events: Event) -> list[str]:
        history = _history("a", "b")
        history.register("c", "acme", "user:ada")
        for event in events:
            history.note(event)
        history.erased.append(Erased("acme", "user:ada", number, 4, 5, "erase"))
        return _kinds(history)

    assert counted(2) == []
    assert counted(1) == counted(3) == ["miscounted"]
    born = Event("c", Act.CREATE, "mc", 3, maybe=True)
    assert counted(2, born) == counted(3, born) == []
    assert counted(4, born) == ["miscounted"]
    assert counted(1, Event("b", Act.DELETE, None, 2, 3)) == []
    assert counted(2, Event("b", Act.DELETE, None, 2, 3)) == ["miscounted"]
    assert counted(1, Event("b", Act.DELETE, None, 3, maybe=True)) == []


def _linked(**sight: object) -> History:
    history = _history("a", "b")
    history.links.made.append(LinkAct(LINK, 2, 3, "relate"))
    history.links.sights.append(replace(LinkSight("acme", frozenset(), 6, 7, "related"), **sight))  # type: ignore[arg-type]
    return history


def test_an_acknowledged_link_is_listed_until_it_is_cut_or_an_end_of_it_is_gone() -> None:
    assert _kinds(_linked(shown=frozenset({LINK}))) == []
    assert _kinds(_linked()) == ["lost"]
    assert _kinds(_linked(whole=False)) == []
    assert _kinds(_linked(label="refines")) == []
    assert _kinds(_linked(shown=frozenset({LINK}), source_id="idb")) == ["foreign"]
    gone = _linked()
    gone.note(Event("b", Act.DELETE, None, 5, maybe=True))
    assert _kinds(gone) == []


def test_a_link_that_was_cut_or_whose_end_was_deleted_is_not_shown() -> None:
    cut = _linked(shown=frozenset({LINK}))
    cut.links.cut.append(LinkAct(LINK, 4, 5, "unrelate"))
    assert _kinds(cut) == ["resurrected"]
    cut.links.made.append(LinkAct(LINK, 4.5, inf, "relate", maybe=True))
    assert _kinds(cut) == []
    deleted = _linked(shown=frozenset({LINK}))
    deleted.note(Event("b", Act.DELETE, None, 4, 5))
    assert _kinds(deleted) == ["resurrected"]
    never = _linked(shown=frozenset({LINK}))
    never.links.made.clear()
    assert _kinds(never) == ["resurrected"]


def test_a_link_is_made_once_cut_once_and_between_what_is_there() -> None:
    twice = _linked(shown=frozenset({LINK}))
    twice.links.made.append(LinkAct(LINK, 4, 5, "relate"))
    assert _kinds(twice) == ["doubled"]
    cut_twice = _linked()
    cut_twice.links.cut += [LinkAct(LINK, 3.2, 4, "unrelate"), LinkAct(LINK, 4.5, 5, "unrelate")]
    assert _kinds(cut_twice) == ["order"]
    to_nothing = _linked(whole=False)
    to_nothing.note(Event("b", Act.DELETE, None, 1.2, 1.5))
    assert "order" in _kinds(to_nothing)
    refused = _linked(shown=frozenset({LINK}))
    refused.links.refused.append(LinkAct(("acme", "ida", "refines", "idb"), 4, 5, "relate"))
    assert _kinds(refused) == ["lost"]
