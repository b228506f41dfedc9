"""What somebody does next: an operation drawn by chance from what the model knows to be
there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.model import (
    artifacts,
    browsing,
    documents,
    graph,
    numbering,
    paths,
    scratchpads,
    structured,
    superseding,
    views,
)
from tests.model.learning.operations import DRAWS as OF_LEARNING
from tests.model.model import Life
from tests.model.not_yet import NOT_YET
from tests.model.operations import Operation
from tests.model.sessions.generate import DRAWS as OF_SESSIONS
from tests.model.words import LONG, TOPICS, is_own, own_word

if TYPE_CHECKING:
    from tests.model.run import Run

TENANTS = ("acme", "acme", "globex")
SCOPES = (
    "session:s1",
    "session:s2",
    "session:s3",
    "user:ada",
    "user:bob",
    "workspace:w 1",
    "org:o",
    "object:ticket:t1",
)
ON_PATHS = 0.3
"""How often a scope is a path."""
SESSIONS = ("s1", "s2", "s3")
CASES = ("case 1", "case 2", "case 3")
TYPES = ("user", "feedback", "project", "reference", "learning", "context")
TAGS = ("fact", "red", "Red", "blue", "to do", "ünï")
CONVERSATIONS, SPEAKERS = ("c-1", "c-2", "s1"), ("Ada", "Bob", "ünï corn")
LABELS = ("relates_to", "refines", "contradicts", "supersedes", "supports")
CROWD = 140
"""Entries beyond which more is deleted than written."""

METADATA: tuple[dict[str, Any], ...] = (
    {"agent_id": "agent-1"},
    {"source": "conversation"},
    {"number": 0},
    {"number": True, "source": "conversation"},
)
"""What is asked of metadata; of a number that it is no boolean."""
LENGTHS = (20, 40, 120)
"""Operations of one day."""
DAYS = {
    "births": {"write", "write_many", "write_again", "write_other", "upsert"},
    "edits": {"update", "upsert"},
    "ends": {"write", "retire", "supersede", "delete", "boundary"},
    "derived": {"write", "promote", "compact", "relate", "unrelate"},
    "moves": {"write", "update", "move", "end_session", "sweep"},
    "questions": {
        "get",
        "history",
        "retrieve",
        "search_word",
        "search_topic",
        "relations",
        *graph.DRAWS,
        *browsing.DRAWS,
        *paths.DRAWS,
        "list_documents",
    },
    "views": {"write", "promote", "relate", *views.DRAWS},
    "documents": {"write", "delete_scope", "erase_subtree", "sweep", "list_scopes", *documents.DRAWS},
    "notes": {
        "write",
        "write_again",
        "delete",
        "supersede",
        "relate",
        *scratchpads.DRAWS,
        *numbering.DRAWS,
        *graph.DRAWS,
    },
    "talks": {*OF_SESSIONS, *OF_LEARNING, *artifacts.DRAWS, "end_session", "sweep"},
}
"""What a day may be full of: a day of edits is not like a day of questions, and what
fails on one may not be met on the other.
"""

Drawn = tuple[str, dict[str, Any]]


class Generator:
    """Draws operations. It can be put away with the run and taken up again."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance: random.Random = random.Random(seed)  # noqa: S311 - a seeded run is to be the same again
        self.number = 0
        self._busy: dict[str, float] = {}
        self._evening = 0

    def next(self, run: Run) -> Operation:
        self.number += 1
        tenant = self.chance.choice(TENANTS)
        if self.number > self._evening:
            self._busy, self._evening = self._day(), self.number + self.chance.choice(LENGTHS)
        kinds = {kind: weight * self._busy[kind] for kind, weight in _WEIGHTS.items()}
        if len(run.model.lives) > CROWD:
            kinds |= {"delete": 14, "delete_scope": 5}
        drawn = None
        while drawn is None:
            kind = (
                "write"
                if self.chance.random() < 0.01
                else self.chance.choices(list(kinds), list(kinds.values()))[0]
            )
            drawn = _DRAWS[kind](self, run, tenant)
        worker = self.chance.randrange(4)
        return Operation(self.number, drawn[0], tenant, worker, self._wait(), drawn[1])

    def _day(self) -> dict[str, float]:
        """How much more than usual each kind is done: on a day of edits many, on others
        some of everything, or by chance.
        """
        mood = self.chance.choice((*DAYS, None, None, "any"))
        if mood == "any":
            return {kind: self.chance.choice((0, 0.3, 1, 1, 3, 10)) for kind in _WEIGHTS}
        return {kind: 1.0 if mood is None else 5.0 if kind in DAYS[mood] else 0.05 for kind in _WEIGHTS}

    def _wait(self) -> float:
        """Mostly seconds, now and then hours; no round numbers, so that rules by age
        are met clearly or not at all.
        """
        return self.chance.choices((0, 3, 97, 5_003, 90_001), (30, 50, 14, 5, 1))[0] * self.chance.random()

    # -- what to speak of --------------------------------------------------------------

    def refs(self, run: Run, tenant: str, *, active: bool = False) -> list[str]:
        lives, now = run.model.lives, run.clock.now
        return [
            ref
            for ref, key in run.made.items()
            if key[0] == tenant and key in lives and (not active or lives[key].active(now))
        ]

    def ref(self, run: Run, tenant: str) -> str | None:
        """Mostly one that is active, sometimes any, now and then one that has been
        deleted.
        """
        mood = self.chance.random()
        lately = list(run.made.items())[-300:]
        refs = (
            [ref for ref, key in lately if key[0] == tenant]
            if mood < 0.06
            else self.refs(run, tenant, active=mood < 0.85)
        )
        return self.chance.choice(refs) if refs else None

    def life(self, run: Run, ref: str) -> Life | None:
        return run.model.lives.get(run.made[ref])

    def scope(self) -> str:
        return self.chance.choice(paths.PATHS if self.chance.random() < ON_PATHS else SCOPES)

    def places(self, count: int) -> list[str]:
        """Scopes and subtrees, all different."""
        chosen = self.chance.sample(SCOPES, count)
        for place in range(count):
            if self.chance.random() < ON_PATHS:
                chosen[place] = self.chance.choice((*paths.PATHS, *paths.SUBTREES))
        return list(dict.fromkeys(chosen))

    # -- what to say -------------------------------------------------------------------

    def text(self, part: str) -> str:
        topic, filling = (
            self.chance.choice(list(TOPICS)),
            self.chance.choice(("the blue pot", "naïve résumé", "O'Brien said: hello -world", "日本語", "a")),
        )
        return f"{filling} {topic if self.chance.random() < 0.7 else 'nothing'} {own_word(self.number, part)}"

    def content(self, part: str) -> str:
        """A text, a long one at times."""
        return f"{LONG if self.chance.random() < 0.15 else ''}{self.text(part)}"

    def tags(self) -> list[str]:
        return self.chance.choices(TAGS, k=self.chance.choice((0, 0, 1, 2, 3)))

    def metadata(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name in self.chance.sample(
            ("confidence", "agent_id", "source", "number", "nested", "promotedFromId"),
            self.chance.choice((0, 1, 1, 3)),
        ):
            made[name] = {
                "confidence": self.chance.random(),
                "agent_id": f"agent-{self.chance.randrange(3)}",
                "source": "conversation",
                "number": self.chance.choice(
                    (0, -1, 2**62 + 1, 1e300, -0.1, self.chance.gauss(0, 1e6), True, None)
                ),
                "nested": {
                    "list": [1, 2.5, "x", None, {"deep": self.chance.random()}],
                    "quote": 'it\'s "so" \\ /',
                },
                "promotedFromId": "fake",
            }[name]
        return made

    def expiry(self) -> dict[str, float]:
        return {"in": self.chance.choice((-100.5, 3.5, 60.5, 3_600.5, 86_400.5, 5 * 86_400.5))}

    def draft(self, part: str = "a", key: str | None = None) -> dict[str, Any]:
        draft: dict[str, Any] = {"content": self.content(part), "scope": self.scope()}
        may = self.chance.random
        if may() < 0.3:
            draft["title"] = self.text(part + "t")
            if may() < 0.2:
                draft["content"] = ""
        draft |= {"type": self.chance.choice(TYPES)} if may() < 0.5 else {}
        draft |= {"source": f"letter {own_word(self.number, part + 's')}"} if may() < 0.2 else {}
        draft |= {"tags": self.tags()} if may() < 0.6 else {}
        draft |= {"metadata": self.metadata()} if may() < 0.6 else {}
        draft |= {"expires_at": self.expiry()} if may() < 0.15 else {}
        draft |= (
            {"created_at": {"in": self.chance.choice((-90_000.25, -3_600.25, 120.25, 4_000.25))}}
            if may() < 0.12
            else {}
        )
        draft |= self.said_where() if may() < 0.3 else {}
        draft |= {"data": structured.drawn_data(self, part)} if may() < 0.25 else {}
        draft |= {"searchable": False} if may() < 0.08 else {}
        draft |= {"content": ""} if "data" in draft and may() < 0.2 else {}
        return draft | ({"key": key} if key else {})

    def said_where(self) -> dict[str, Any]:
        """In which conversation, where in it and by whom: at times what another says
        that it is, too.
        """
        said: dict[str, Any] = {"conversation_id": self.chance.choice(CONVERSATIONS)}
        said |= {"number_in_conversation": self.chance.randrange(40)} if self.chance.random() < 0.8 else {}
        named = self.chance.random() < 0.7 or len(said) == 1  # a pin alone must name a session
        return said | ({"speaker": self.chance.choice(SPEAKERS)} if named else {})

    def changes(self, part: str = "a") -> dict[str, Any]:
        names = self.chance.sample(
            ("content", "title", "type", "source", "tags", "metadata", "expires_at", "data", "searchable"),
            self.chance.choice((0, 1, 1, 1, 2, 3)),
        )
        may = self.chance.random
        values: dict[str, Callable[[], Any]] = {
            "content": lambda: "" if may() < 0.05 else self.content(part),
            "title": lambda: None if may() < 0.3 else self.text(part + "t"),
            "type": lambda: self.chance.choice(TYPES),
            "source": lambda: None if may() < 0.3 else f"letter {own_word(self.number, part + 's')}",
            "tags": self.tags,
            "metadata": self.metadata,
            "expires_at": lambda: None if may() < 0.5 else self.expiry(),
            "data": lambda: None if may() < 0.2 else structured.drawn_data(self, part),
            "searchable": lambda: may() < 0.6,
        }
        return {name: values[name]() for name in names}

    def moment(self, run: Run, ref: str | None = None) -> dict[str, Any]:
        life = None if ref is None else self.life(run, ref)
        if life is not None and "own moment" not in NOT_YET and self.chance.random() < 0.6:
            return {
                "own": ref,
                "version": self.chance.randrange(len(life.versions)),
                "plus": self.chance.choice((-1, 0, 0, 1)),
            }
        return {"before": self.chance.randrange(max(1, self.number - 300), self.number + 1)}

    def asked(self, run: Run, tenant: str, known_at: bool = True) -> dict[str, Any]:
        may, asked = self.chance.random, dict[str, Any]()
        asked["scopes"] = self.places(self.chance.choice((1, 1, 1, 2)))
        asked |= {"tags": self.chance.sample(TAGS, self.chance.choice((1, 1, 2)))} if may() < 0.3 else {}
        asked |= {"types": self.chance.sample(TYPES, 2)} if may() < 0.25 else {}
        asked |= {"any_tags": self.chance.sample(TAGS, 2)} if may() < 0.15 else {}
        asked |= {"metadata": self.chance.choice(METADATA)} if may() < 0.15 else {}
        asked |= {"before": self.moment(run, self.ref(run, tenant))} if may() < 0.15 else {}
        asked |= {"where": structured.drawn_where(self)} if may() < 0.2 else {}
        ref = self.ref(run, tenant)
        asked |= (
            {
                "since": {
                    "own": ref,
                    "version": 0,
                    "field": "created_at",
                    "plus": self.chance.choice((0, 0, 1)),
                }
            }
            if ref and may() < 0.25
            else {}
        )
        asked |= {"as_of": self.moment(run)} if may() < 0.2 else {}
        asked |= {"known_at": self.moment(run, ref)} if known_at and may() < 0.2 else {}
        return asked

    def preferred(self) -> dict[str, Any]:
        """What a search prefers."""
        may, preferred = self.chance.random, dict[str, Any]()
        preferred |= {"tags": self.chance.sample(TAGS, self.chance.choice((1, 2)))} if may() < 0.3 else {}
        preferred |= {"types": self.chance.sample(TYPES, 2)} if may() < 0.3 else {}
        return preferred | ({"age_decay": False} if may() < 0.2 else {})


def _write(g: Generator, run: Run, tenant: str) -> Drawn | None:
    key = f"k{g.number}" if g.chance.random() < 0.3 else None
    return "write", {"draft": g.draft(key=key)}


def _write_again(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = [
        ref
        for ref in run.drafts
        if "keyed write after deletion" not in NOT_YET or run.made.get(ref) in run.model.lives
    ]
    return ("write_again", {"draft_of": g.chance.choice(refs)}) if refs else None


def _write_other(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Another text under a used key: a conflict, or after a deletion a new life where
    that is asked for.
    """
    refs = [ref for ref, (owner, _) in run.drafts.items() if owner == tenant]
    if not refs:
        return None
    ref = g.chance.choice(refs)
    dead = run.made.get(ref) not in run.model.lives
    if dead and "keyed write after deletion" in NOT_YET:
        return None
    used = run.drafts[ref][1]
    revive = {"revive": True} if "revive" not in NOT_YET and g.chance.random() < 0.5 else {}
    return "write", {
        "draft": {"content": g.content("a"), "scope": used["scope"], "key": used["key"]},
        **revive,
    }


def _write_many(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Now and then with one whose key was used for another text."""
    count = g.chance.choice((1, 2, 5, 12, 40))
    drafts = [
        g.draft(f"b{n}x", key=f"k{g.number}-{n}" if g.chance.random() < 0.1 else None) for n in range(count)
    ]
    used = [
        draft
        for ref, (owner, draft) in run.drafts.items()
        if owner == tenant and run.made.get(ref) in run.model.lives
    ]
    if used and "conflict in a batch" not in NOT_YET and g.chance.random() < 0.2:
        other = g.chance.choice(used)
        drafts.insert(
            g.chance.randrange(count),
            {"content": g.content("bx"), "scope": other["scope"], "key": other["key"]},
        )
    return "write_many", {"drafts": drafts}


def _update(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref = g.ref(run, tenant)
    return ("update", {"entry": ref, "changes": g.changes()}) if ref else None


def _retire(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref = g.ref(run, tenant)
    when = g.chance.choice(
        (None, None, {"in": -1.5}, {"in": -(10**8) - 0.5}, {"in": 120.5}, {"in": 86_400.5})
    )
    return ("retire", {"entry": ref, "when": when}) if ref else None


def _delete(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = g.refs(run, tenant) if g.chance.random() < 0.6 else []
    ref = g.chance.choice(refs) if refs else g.ref(run, tenant)
    return ("delete", {"entry": ref}) if ref else None


def _delete_scope(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """At times one of which an entry is held."""
    held = [
        life.scope
        for life in run.model.of(tenant)
        if run.model.held(tenant, life) and not run.model.holds_all(tenant, life.scope)
    ]
    return "delete_scope", {
        "scope": g.chance.choice(held if held and g.chance.random() < 0.6 else [g.scope()])
    }


def _promote(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Half the time something that was promoted before, the same way or otherwise."""
    before = [life for life in run.model.of(tenant) if life.made_of is not None]
    if before and g.chance.random() < 0.4:
        copy = g.chance.choice(before)
        assert copy.made_of is not None
        ref = next((ref for ref, key in run.made.items() if key == (tenant, copy.made_of[0])), None)
        to, overrides = copy.scope, copy.overrides
        if "other overrides" not in NOT_YET and g.chance.random() < 0.3:
            overrides = {"content": g.content("p")}
    else:
        ref, to = g.ref(run, tenant), g.scope()
        overrides = g.chance.choice(
            ({}, {}, {"content": g.content("p")}, {"tags": g.tags(), "metadata": g.metadata()})
        )
    away = g.chance.random() < 0.3
    if ref is None or (
        _unfaithful(g, run, tenant, ref, to, overrides, away) and "promote away after an edit" in NOT_YET
    ):
        return None
    return "promote", {"entry": ref, "to": to, "overrides": overrides, "delete_original": away}


def _unfaithful(
    g: Generator, run: Run, tenant: str, ref: str, to: str, overrides: dict[str, Any], away: bool
) -> bool:
    """Whether the copy says other than the original does, and the original is to go."""
    source = g.life(run, ref)
    copies = [
        life
        for life in run.model.in_scopes(tenant, [to])
        if life.made_of is not None and life.made_of[0] == run.made[ref][1]
    ]
    if not copies or source is None:
        return False
    copy = copies[0]
    faithful = copy.active(run.clock.now) and copy.made_of == (source.id, source.now.fields["version"])
    return (away and not faithful) or copy.overrides != overrides


def _compact(g: Generator, run: Run, tenant: str) -> Drawn | None:
    first = g.ref(run, tenant)
    if first is None:
        return None
    scope = run.model.lives[run.made[first]].scope if run.made[first] in run.model.lives else ""
    alike = [ref for ref in g.refs(run, tenant, active=True) if run.model.lives[run.made[ref]].scope == scope]
    chosen = [first, *g.chance.sample(alike, min(len(alike), g.chance.choice((1, 2, 3))))]
    mood = g.chance.random()
    if mood < 0.1:
        chosen = g.chance.choice(([], [*chosen, g.ref(run, tenant) or first]))
    args: dict[str, Any] = {
        "entries": chosen,
        "text": None if 0.1 < mood < 0.15 else g.text("c"),
        "delete_sources": g.chance.random() < 0.5,
    }
    args |= {"target": g.scope()} if 0.15 < mood < 0.2 else {}
    args |= {"patch": {"tags": g.tags(), "metadata": g.metadata()}} if mood > 0.8 else {}
    return "compact", args


def _relate(g: Generator, run: Run, tenant: str) -> Drawn | None:
    source, target = g.ref(run, tenant), g.ref(run, tenant)
    return (
        ("relate", {"source": source, "label": g.chance.choice(LABELS), "target": target})
        if source and target
        else None
    )


def _unrelate(g: Generator, run: Run, tenant: str) -> Drawn | None:
    there = run.model.links.get(tenant, {})
    refs = [ref for ref, link in run.made_links.items() if link in there] or [
        ref for ref, link in run.made_links.items() if link
    ]
    owned = [ref for ref in refs if run.made_links[ref] in there]
    return ("unrelate", {"link": g.chance.choice(owned)}) if owned else None


def _move(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = [ref for ref in (g.ref(run, tenant), g.ref(run, tenant)) if ref]
    return (
        ("move", {"entries": refs, "to": g.chance.choice(("mid", "long", "long", "short"))}) if refs else None
    )


def _get(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref = g.ref(run, tenant)
    if ref is None:
        return None
    moments = {name: g.moment(run, ref) for name in ("as_of", "known_at") if g.chance.random() < 0.35}
    return "get", {"entry": ref, "moments": moments}


def _foreign(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = [ref for other in set(TENANTS) - {tenant} for ref in g.refs(run, other)]
    return ("foreign", {"entry": g.chance.choice(refs)}) if refs else None


def _retrieve(g: Generator, run: Run, tenant: str) -> Drawn | None:
    args = {
        "asked": g.asked(run, tenant),
        "order": g.chance.choice(("newest", "oldest")),
        "limit": g.chance.choice((1, 2, 5, 20, 1000)),
    }
    args |= {"paged": True, "limit": g.chance.choice((1, 2, 5))} if g.chance.random() < 0.4 else {}
    return "retrieve", args | ({"session": g.chance.choice(SESSIONS)} if g.chance.random() < 0.2 else {})


def _search_word(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref = g.ref(run, tenant)
    life = None if ref is None else g.life(run, ref)
    words = (
        [] if life is None else sorted(word for word in g.chance.choice(life.versions).words if is_own(word))
    )
    if life is None or not words:
        return None
    asked = g.asked(run, tenant)
    asked["scopes"] = g.chance.choice(
        ([life.scope], paths.around(life.scope), [*SCOPES, paths.SUBTREES[0]], g.places(2))
    )
    args = {"asked": asked, "word_of": ref, "word": g.chance.choice(words), "preferred": g.preferred()}
    return "search_word", args | ({"session": g.chance.choice(SESSIONS)} if g.chance.random() < 0.2 else {})


def _search_topic(g: Generator, run: Run, tenant: str) -> Drawn | None:
    asked = g.asked(run, tenant, known_at=False)
    asked["scopes"] = g.places(g.chance.choice((1, 2, 8)))
    return "search_topic", {
        "asked": asked,
        "topic": g.chance.choice(list(TOPICS)),
        "preferred": g.preferred(),
    }


def _relations(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref, args = g.ref(run, tenant), dict[str, Any](limit=g.chance.choice((1, 3, 200)))
    args |= {g.chance.choice(("source_id", "target_id")): ref} if ref and g.chance.random() < 0.7 else {}
    return "relations", args | ({"label": g.chance.choice(LABELS)} if g.chance.random() < 0.3 else {})


def _boundary(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ends = [
        (ref, field)
        for ref in g.refs(run, tenant)
        for field in ("expires_at", "valid_to")
        if run.model.lives[run.made[ref]].now.fields[field]
    ]
    ends = [
        (ref, field)
        for ref, field in ends
        if run.model.lives[run.made[ref]].now.fields[field] > run.clock.now
    ]
    if not ends:
        return None
    ref, field = g.chance.choice(ends)
    return "boundary", {"entry": ref, "field": field}


def _together(g: Generator, run: Run, tenant: str) -> Drawn | None:
    call, ref, times = (
        g.chance.choice(("update", "write", "delete", "promote", "relate")),
        g.ref(run, tenant),
        g.chance.choice((2, 3, 4)),
    )
    if call == "write":
        return "together", {"call": call, "draft": g.draft(key=f"k{g.number}"), "times": times}
    if ref is None:
        return None
    args: dict[str, Any] = {"call": call, "times": times, "entry": ref}
    if call == "update":
        args |= {
            "changes": [
                {"metadata": {f"worker {n}": g.number}, "content": g.content(f"w{n}x")} for n in range(times)
            ]
        }
    if call == "promote":
        args |= {"to": g.scope()}
        if _unfaithful(g, run, tenant, ref, args["to"], {}, away=False):
            return None
    if call == "relate":
        other = g.ref(run, tenant)
        if other is None:
            return None
        args |= {"source": ref, "label": g.chance.choice(LABELS), "target": other}
    return "together", args


def _simple(kind: str, **choices: Sequence[Any]) -> Callable[[Generator, Run, str], Drawn | None]:
    def draw(g: Generator, run: Run, tenant: str) -> Drawn | None:
        return kind, {name: g.chance.choice(values) for name, values in choices.items()}

    return draw


def _history(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref = g.ref(run, tenant)
    return ("history", {"entry": ref}) if ref else None


def _end_session(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly one of which something is copied."""
    copied = [
        name for name in SESSIONS if any(to for _, to in run.model.to_copy(tenant, name, run.clock.now))
    ]
    session = g.chance.choice(copied if copied and g.chance.random() < 0.7 else [*SESSIONS, "c1"])
    return "end_session", {"session": session, "again": g.chance.random() < 0.5}


def _rounds(g: Generator, run: Run, tenant: str) -> Drawn | None:
    return "in_rounds", {"dies": g.chance.randrange(60) if g.chance.random() < 0.5 else None}


def _hold(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly over an entry; never over so much for long that nothing goes any more."""
    placed = [name for owner, name in run.model.holds if owner == tenant]
    ref = g.ref(run, tenant)
    if len(placed) > 2 or ref is None:
        return "release_hold", {"name": g.chance.choice([*placed, *CASES])}
    over = g.chance.choice(
        [{"entry_id": ref}] * 5
        + [{"scope": g.scope()}] * 3
        + [{"scope": path} for path in paths.PATHS[:2]]
        + [{"user": g.chance.choice(("ada", "bob"))}] * 4
        + [{"tenant": tenant}]
    )
    return "place_hold", {"name": g.chance.choice(CASES), "over": over}


def _release(g: Generator, run: Run, tenant: str) -> Drawn | None:
    placed = [name for owner, name in run.model.holds if owner == tenant]
    return ("release_hold", {"name": g.chance.choice(placed)}) if placed else None


def _reopen(g: Generator, run: Run, tenant: str) -> Drawn | None:
    return ("reopen", {}) if run.topology.reopens else None


OTHERS = (
    OF_SESSIONS
    | OF_LEARNING
    | scratchpads.DRAWS
    | graph.DRAWS
    | browsing.DRAWS
    | paths.DRAWS
    | documents.DRAWS
    | views.DRAWS
    | numbering.DRAWS
    | artifacts.DRAWS
)
_WEIGHTS: dict[str, float] = {
    "write": 14,
    "write_many": 1.5,
    "write_again": 2,
    "write_other": 1,
    "supersede": 3,
    "upsert": 4,
    "update": 18,
    "retire": 3,
    "delete": 5,
    "delete_scope": 0.8,
    "promote": 5,
    "compact": 3,
    "relate": 6,
    "unrelate": 1,
    "end_session": 1.7,
    "move": 3,
    "sweep": 1,
    "in_rounds": 0.5,
    "reopen": 0.3,
    "months": 0.4,
    "boundary": 1,
    "place_hold": 1.7,
    "release_hold": 1.3,
    "transfer_all": 0.3,
    "get": 6,
    "foreign": 1,
    "history": 2,
    "retrieve": 6,
    "search_word": 6,
    "search_topic": 2,
    "relations": 2,
    "together": 3,
    **{kind: weight for kind, (weight, _) in OTHERS.items()},
}
_DRAWS: dict[str, Callable[[Generator, Run, str], Drawn | None]] = {
    "write": _write,
    "write_many": _write_many,
    "write_again": _write_again,
    "write_other": _write_other,
    "supersede": superseding.draw_supersede,
    "upsert": superseding.draw_upsert,
    "update": _update,
    "retire": _retire,
    "delete": _delete,
    "delete_scope": _delete_scope,
    "promote": _promote,
    "compact": _compact,
    "relate": _relate,
    "unrelate": _unrelate,
    "end_session": _end_session,
    "move": _move,
    "sweep": _simple("sweep"),
    "in_rounds": _rounds,
    "reopen": _reopen,
    "months": _simple("months", days=(31, 45, 200)),
    "boundary": _boundary,
    "place_hold": _hold,
    "release_hold": _release,
    "transfer_all": _simple("transfer_all"),
    "get": _get,
    "foreign": _foreign,
    "history": _history,
    "retrieve": _retrieve,
    "search_word": _search_word,
    "search_topic": _search_topic,
    "relations": _relations,
    "together": _together,
    **{kind: draw for kind, (_, draw) in OTHERS.items()},
}


def draw(kind: str, g: Generator, run: Run, tenant: str) -> Drawn | None:
    """One operation of a kind."""
    return _DRAWS[kind](g, run, tenant)
