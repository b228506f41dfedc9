"""What a memory must be, in plain Python: lives of entries with all their versions, links, graves. It knows what is documented and no code.

Ids, moments and versions are the memory's to choose: they are taken over from its answers where they can be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from memory.orchestrator.settings import EngineSettings
from tests.month.said import Said, differences, plain

TIERS = ("short", "mid", "long")
PROMOTABLE = {
    "session": ("user", "workspace", "org", "object"),
    "user": ("workspace", "org"),
    "workspace": ("org",),
    "org": (),
    "object": ("user", "workspace", "org"),
}
MICROSECOND = timedelta(microseconds=1)
SKEW = timedelta(minutes=5)
IDLE = timedelta(days=7)
EXPIRED_GRACE = EngineSettings().expired_grace
TOMBSTONE_LIFE = timedelta(days=30)
FACT, SURE = "fact", 0.8
CROWDED, SETTLED = 6, timedelta(days=20)
RULES: list[dict[str, Any]] = [
    {"name": "facts-last", "on": "session_end", "source": "short", "target": "long", "tags": [FACT], "min_confidence": SURE},
    {"name": "idle-sessions", "on": "sweep", "source": "short", "target": "mid", "idle_for": "7d"},
    {"name": "crowded", "on": "write", "source": "short", "target": "mid", "when": {"scope_over": {"count": CROWDED}, "not": {"tag": FACT}}},
    {
        "name": "settled",
        "on": "sweep",
        "source": "mid",
        "target": "long",
        "scope_kinds": ["user", "org"],
        "tenants": ["acme"],
        "when": {"older_than": "20d", "any": [{"type": "context"}, {"not": {"confidence_at_least": 0.5}}]},
    },
]
"""The first two as delivered. Rules for writes are asked by sweeps here: nothing runs by itself."""

Id = tuple[str, str]
"""Tenant and id."""


def kind_of(scope: str) -> str:
    return scope.partition(":")[0]


def words_in(text: str) -> list[str]:
    return text.replace("'", " ").replace('"', " ").split()


def birth_tier(scope: str) -> str:
    return "short" if kind_of(scope) == "session" else "mid"


@dataclass(slots=True)
class Version:
    """What an entry said from one moment until the next version; the fields as `plain` shows them, but for the tier, which is the life's."""

    fields: dict[str, Any]
    stored: tuple[datetime, datetime]
    """From when on it may be known, and from when on it must be."""

    @property
    def words(self) -> frozenset[str]:
        said = (self.fields["title"] or "", self.fields["content"], *self.fields["tags"], self.fields["source"] or "")
        return frozenset(word for text in said for word in text.split())

    def expired(self, at: datetime) -> bool:
        end = self.fields["expires_at"]
        return end is not None and end < at

    def valid(self, at: datetime) -> bool:
        return bool(self.fields["valid_from"] <= at) and self.before_end(at)

    def before_end(self, at: datetime) -> bool:
        end = self.fields["valid_to"]
        return end is None or at < end


@dataclass(slots=True)
class Life:
    """One entry from its birth to its deletion."""

    versions: list[Version]
    tier: str
    born_in: str
    draft: dict[str, Any] | None = None
    """What a keyed write asked for, to tell a repeat from another."""
    made_of: tuple[str, int] | None = None
    """Of a promoted entry: the id and version of its source."""
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def now(self) -> Version:
        return self.versions[-1]

    @property
    def id(self) -> str:
        return str(self.now.fields["id"])

    @property
    def scope(self) -> str:
        return str(self.now.fields["scope"])

    def current(self) -> dict[str, Any]:
        return self.now.fields | {"tier": self.tier}

    def active(self, at: datetime) -> bool:
        return not self.now.expired(at) and self.now.before_end(at)

    def known(self, moment: datetime) -> tuple[Version | None, bool]:
        """The version that was stored then, and whether that can be told to the microsecond."""
        for version in reversed(self.versions):
            if version.stored[1] <= moment:
                return version, True
            if version.stored[0] <= moment:
                return version, False
        return None, True

    def seen(self, now: datetime, as_of: datetime | None, known_at: datetime | None) -> tuple[Version | None, bool]:
        """What a reader sees of it, and whether that is certain."""
        if self.now.expired(now):
            return None, True
        if known_at is None:
            visible = self.now.before_end(now) if as_of is None else self.now.valid(as_of)
            return (self.now if visible else None), True
        version, certain = self.known(known_at)
        if version is None or version.expired(known_at) or not version.valid(as_of or known_at):
            return None, certain
        return version, certain


@dataclass(frozen=True, slots=True)
class Grave:
    """What is left of a deleted entry: when it fell, what a repeated keyed write is told from, and the words that must be gone."""

    fallen: datetime
    draft: dict[str, Any] | None
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class Link:
    id: str
    source_id: str
    target_id: str
    label: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to many entries at once."""

    tenant: str
    scopes: tuple[str, ...]
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None


class Model:
    """Every tenant's memory."""

    def __init__(self) -> None:
        self.lives: dict[Id, Life] = {}
        self.graves: dict[Id, Grave] = {}
        self.keys: dict[tuple[str, str, str | None], str] = {}
        """By tenant, scope and key: the id of the entry that was written under it."""
        self.links: dict[str, dict[str, Link]] = {}
        self.summaries: dict[tuple[Any, ...], Id] = {}

    # -- finding ------------------------------------------------------------------------------------------------------

    def of(self, tenant: str) -> Iterator[Life]:
        return (life for (owner, _), life in self.lives.items() if owner == tenant)

    def in_scopes(self, tenant: str, scopes: Sequence[str]) -> list[Life]:
        return [life for life in self.of(tenant) if life.scope in scopes]

    def life(self, tenant: str, entry_id: str) -> Life | None:
        return self.lives.get((tenant, entry_id))

    def active(self, tenant: str, entry_id: str, at: datetime) -> Life | None:
        life = self.life(tenant, entry_id)
        return life if life is not None and life.active(at) else None

    def living_words(self) -> set[str]:
        """Every word of every version, wherever in it."""
        texts = (str(value) for life in self.lives.values() for version in life.versions for value in version.fields.values())
        return {word for text in texts for word in words_in(text)}

    # -- births -------------------------------------------------------------------------------------------------------

    def written(self, said: Said, tenant: str, drafts: Sequence[dict[str, Any]], *, revive: bool = False) -> list[Id]:
        if any(draft.get("created_at") is not None and draft["created_at"] > said.ended + SKEW for draft in drafts):
            said.refused("InvalidInput")
            return []
        used = [self.keys.get((tenant, draft["scope"], draft.get("key"))) for draft in drafts]
        clashes = [n for n, entry_id in enumerate(used) if entry_id is not None and self._clashes((tenant, entry_id), drafts[n], said, revive)]
        if clashes:
            return self._written_in_part(said, tenant, drafts, clashes, str(used[clashes[0]]))
        entries = said.given()
        if len(entries) != len(drafts):
            said.wrong("answers otherwise", f"{len(entries)} entries of {len(drafts)} drafts")
        return [self._born(said, tenant, draft, plain(entry)) for draft, entry in zip(drafts, entries, strict=True)]

    def _written_in_part(self, said: Said, tenant: str, drafts: Sequence[dict[str, Any]], clashes: Sequence[int], used_by: str) -> list[Id]:
        """A key in conflict keeps no other draft from being stored; the error says which were."""
        text = said.refused("Conflict" if said.call.startswith("write of") else "PartialWrite")
        if len(drafts) == 1 and used_by not in text:
            said.wrong("names no existing id", text)
        written = (said.failure.written if said.failure is not None else None) or {}
        if set(written) != set(range(len(drafts))) - set(clashes):
            said.wrong("writes others", f"{sorted(written)} of {len(drafts)}, in conflict {clashes}")
        return [self._born(said, tenant, drafts[n], plain(entry)) for n, entry in sorted(written.items())]

    def _clashes(self, key: Id, draft: dict[str, Any], said: Said, revive: bool) -> bool:
        if key in self.lives:
            return self.lives[key].draft != draft
        grave = self.graves.get(key)
        return grave is not None and not revive and not (said.failure is None and said.begun - grave.fallen >= TOMBSTONE_LIFE)

    def _born(self, said: Said, tenant: str, draft: dict[str, Any], found: dict[str, Any]) -> Id:
        there = self.lives.get((tenant, found["id"]))
        if there is not None and draft.get("key") is not None and there.draft == draft:  # a repeat: the first outcome
            self._match(said, found, there.versions[0].fields | {"tier": there.born_in})
            return tenant, found["id"]
        wanted = {
            "tenant": tenant,
            "scope": draft["scope"],
            "type": draft.get("type", "context"),
            "title": draft.get("title"),
            "content": draft.get("content", ""),
            "source": draft.get("source"),
            "tags": list(dict.fromkeys(draft.get("tags", ()))),
            "metadata": draft.get("metadata") or {},
            "expires_at": draft.get("expires_at"),
        }
        given, key = draft.get("created_at"), draft.get("key")
        made = self._begin(said, found, wanted, None if given is None or given > said.ended else given, draft if key else None)
        if key:
            self.keys[tenant, draft["scope"], key] = made[1]
        return made

    def _begin(
        self, said: Said, found: dict[str, Any], wanted: dict[str, Any], created_at: datetime | None = None, draft: dict[str, Any] | None = None
    ) -> Id:
        """A new life, as answered: what the memory may choose is taken over where it can be true."""
        key = (str(wanted["tenant"]), str(found["id"]))
        if key in self.lives:
            said.wrong("gives an id that is taken", found["id"])
        born, scope = found["created_at"], wanted["scope"]
        if not (born == created_at if created_at is not None else said.begun <= born <= said.ended):
            said.wrong("is created at another time", f"{born}, between {said.begun} and {said.ended} or given {created_at}")
        tier = found["tier"] if key in self.graves else birth_tier(scope)  # in a second life it stays where its grave was
        chosen = {"id": found["id"], "version": found["version"], "created_at": born}
        nothing = {"valid_to": None, "promoted_from_id": None, "compacted_from_ids": None, "contributors": None}
        fields = nothing | {"updated_at": born, "valid_from": born} | chosen | wanted
        self._match(said, found, fields | {"tier": tier})
        self.graves.pop(key, None)
        stored = (born, born) if created_at is None else (born, said.ended)
        self.lives[key] = Life([Version(fields, stored)], tier, tier, draft)
        return key

    @staticmethod
    def _match(said: Said, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        if told := differences(found, wanted):
            said.wrong("answers another entry", told)

    # -- changes ------------------------------------------------------------------------------------------------------

    def updated(self, said: Said, tenant: str, entry_id: str, changes: dict[str, Any]) -> None:
        life = self.active(tenant, entry_id, said.begun)
        if life is None:
            said.refused("NotFound")
            return
        found = plain(said.given())
        if not changes:
            self._match(said, found, life.current())
            return
        merged = {"metadata": life.now.fields["metadata"] | changes["metadata"]} if "metadata" in changes else {}
        distinct = {"tags": list(dict.fromkeys(changes["tags"]))} if "tags" in changes else {}
        self._next(said, life, found, changes | merged | distinct)

    def _next(self, said: Said, life: Life, found: dict[str, Any], changes: dict[str, Any]) -> None:
        chosen = {"version": found["version"], "updated_at": found["updated_at"]}
        fields = life.now.fields | changes | chosen
        self._match(said, found, fields | {"tier": life.tier})
        latest = max(
            said.ended, life.now.fields["updated_at"] + MICROSECOND
        )  # it comes after the version before, also where that is ahead of our clock
        if not said.begun <= found["updated_at"] <= latest or found["version"] <= life.now.fields["version"]:
            said.wrong("does not come after the version before", f"{chosen} after version {life.now.fields['version']}, begun {said.begun}")
        life.versions.append(Version(fields, (found["updated_at"], found["updated_at"])))

    def retired(self, said: Said, tenant: str, entry_id: str, when: datetime | None, read_again: dict[str, Any] | None) -> None:
        """`read_again` is the entry's current version by its history: the call itself says only whether it did something."""
        life = self.active(tenant, entry_id, said.begun)
        if life is None or life.now.fields["valid_to"] is not None:
            said.equals(False)
            return
        start = life.now.fields["valid_from"]
        if when is not None and when <= start:
            said.refused("InvalidInput")
            return
        said.equals(True)
        if read_again is None:
            said.wrong("loses the history", entry_id)
        end = read_again["valid_to"] if when is None else when
        if end is None or (when is None and not said.begun <= end <= said.ended):
            said.wrong("ends at another time", f"{end}, between {said.begun} and {said.ended}")
        self._next(said, life, read_again, {"valid_to": end})

    def deleted(self, said: Said, tenant: str, entry_id: str) -> None:
        said.equals((tenant, entry_id) in self.lives)
        self.bury(tenant, [entry_id], said.ended)

    def erased(self, said: Said, tenant: str, scope: str) -> None:
        there = [life.id for life in self.in_scopes(tenant, [scope])]
        said.equals(len(there))
        self.bury(tenant, there, said.ended)

    def bury(self, tenant: str, ids: Iterable[str], at: datetime) -> None:
        for entry_id in ids:
            life = self.lives.pop((tenant, entry_id), None)
            if life is None:
                continue
            words = frozenset(word for version in life.versions for word in version.words)
            self.graves[tenant, entry_id] = Grave(at, life.draft, words)
            links = self.links.get(tenant, {})
            for link in [link for link in links.values() if entry_id in (link.source_id, link.target_id)]:
                del links[link.id]

    def forget_graves(self, now: datetime, keep: int) -> None:
        """What sweeps have forgotten by now, and all but the newest: a long run is not to grow."""
        for key in [key for key, grave in self.graves.items() if now - grave.fallen > TOMBSTONE_LIFE] + list(self.graves)[:-keep]:
            self.graves.pop(key, None)
        self.summaries = {identity: made for identity, made in self.summaries.items() if made in self.lives}
        self.keys = {name: used_by for name, used_by in self.keys.items() if {(name[0], used_by)} & (self.lives.keys() | self.graves.keys())}

    # -- derived ------------------------------------------------------------------------------------------------------

    def promoted(self, said: Said, tenant: str, entry_id: str, to: str, overrides: dict[str, Any], *, delete_original: bool) -> Id | None:
        source = self.active(tenant, entry_id, said.begun)
        copy = next((life for life in self.in_scopes(tenant, [to]) if life.made_of is not None and life.made_of[0] == entry_id), None)
        if source is None:
            self._promoted_before(said, copy, overrides)
            return None
        if kind_of(to) not in PROMOTABLE[kind_of(source.scope)]:
            said.refused("InvalidScopePromotion")
            return None
        if copy is None:
            found = plain(said.given())
            key = self._begin(said, found, self._copied(tenant, source, to, overrides))
            made = self.lives[key]
            made.made_of, made.overrides = (entry_id, source.now.fields["version"]), overrides
        elif not self._promoted_again(said, copy, source, overrides, delete_original):
            return None
        if delete_original:
            self.bury(tenant, [entry_id], said.ended)
        return tenant, (copy.id if copy is not None else key[1])

    @staticmethod
    def _copied(tenant: str, source: Life, to: str, overrides: dict[str, Any]) -> dict[str, Any]:
        fields, kind, name = source.now.fields, *source.scope.split(":", 1)
        session = {"created_in_session_id": name} if kind == "session" else {}
        carried = {n: fields[n] for n in ("type", "title", "source", "content", "expires_at", "compacted_from_ids", "contributors")}
        metadata = session | fields["metadata"] | overrides.get("metadata", {})
        tags = list(dict.fromkeys(overrides.get("tags", fields["tags"])))
        whole = carried | overrides | {"metadata": metadata, "tags": tags}
        return whole | {"tenant": tenant, "scope": to, "promoted_from_id": source.id}

    def _promoted_before(self, said: Said, copy: Life | None, overrides: dict[str, Any]) -> None:
        otherwise = copy is not None and copy.overrides != overrides
        if copy is None or not copy.active(said.begun) or (otherwise and said.failure is not None):
            said.refused("NotFound", *(["Conflict"] if otherwise else []))
        else:
            self._match(said, plain(said.given()), copy.current())

    def _promoted_again(self, said: Said, copy: Life, source: Life, overrides: dict[str, Any], delete_original: bool) -> bool:
        """True where the call may have its effect: the original goes only if the copy can be read and says all that it says."""
        if copy.overrides != overrides:
            said.refused("Conflict")
            return False
        faithful = copy.active(said.begun) and copy.made_of == (source.id, source.now.fields["version"])
        if (not faithful and delete_original) or not copy.active(said.begun):
            if said.failure is not None:
                said.refused("Conflict", "NotFound")
            return False
        self._match(said, plain(said.given()), copy.current())
        return True

    def compacted(
        self, said: Said, tenant: str, ids: Sequence[str], text: str | None, target: str | None, patch: dict[str, Any], *, delete_sources: bool
    ) -> Id | None:
        """`text` of None is a callback that fails."""
        distinct = list(dict.fromkeys(ids))
        if not distinct:
            said.refused("CompactionError")
            return None
        found = [self.active(tenant, entry_id, said.begun) for entry_id in distinct]
        sources = [life for life in found if life is not None]
        if len(sources) < len(found):
            said.refused("NotFound")
            return None
        scopes = {life.scope for life in sources}
        if len(scopes) > 1 or target not in (None, *scopes) or text is None:
            said.refused("CompactionError")
            return None
        wanted = _compacted(tenant, sources, text, patch)
        identity = (
            tenant,
            tuple((s.id, s.now.fields["version"]) for s in sources),
            text,
            repr(wanted["tags"]),
            repr(sorted(wanted["metadata"].items(), key=lambda item: item[0])),
        )
        there = self.lives.get(self.summaries.get(identity, ("", "")))
        if there is not None:
            self._match(said, plain(said.given()), there.current())
            key = (tenant, there.id)
        else:
            key = self.summaries[identity] = self._begin(said, plain(said.given()), wanted)
        if delete_sources:
            self.bury(tenant, distinct, said.ended)
        return key

    # -- relations ----------------------------------------------------------------------------------------------------

    def related(self, said: Said, tenant: str, source_id: str, label: str, target_id: str) -> str | None:
        ends = [self.active(tenant, end, said.begun) for end in (source_id, target_id)]
        if None in ends or source_id == target_id:
            said.refused("InvalidInput")
            return None
        for link in self.links.get(tenant, {}).values():
            if (link.source_id, link.label, link.target_id) == (source_id, label, target_id):
                if link.id not in said.refused("Conflict"):
                    said.wrong("does not name the link that is there", link.id)
                return link.id
        made = said.given()
        if (made.source_id, made.label, made.target_id) != (source_id, label, target_id) or not said.begun <= made.created_at <= said.ended:
            said.wrong("answers another link", repr(made))
        self.links.setdefault(tenant, {})[made.id] = Link(made.id, source_id, target_id, label, made.created_at)
        return str(made.id)

    def unrelated(self, said: Said, tenant: str, link_id: str) -> None:
        said.equals(self.links.get(tenant, {}).pop(link_id, None) is not None)

    def related_to(self, tenant: str, source_id: str | None = None, target_id: str | None = None, label: str | None = None) -> list[Link]:
        """Newest first."""
        given = (source_id, target_id, label)
        all_of = self.links.get(tenant, {}).values()
        found = [
            link for link in all_of if all(want in (None, has) for want, has in zip(given, (link.source_id, link.target_id, link.label), strict=True))
        ]
        return sorted(found, key=lambda link: link.created_at, reverse=True)

    # -- tiers --------------------------------------------------------------------------------------------------------

    def session_over(self, said: Said, tenant: str, session: str) -> None:
        """Facts and what is nearly certain go to `long`; the rest stays. Entries past their expiry are not spoken of."""
        report = said.given()
        there = [life for life in self.in_scopes(tenant, [f"session:{session}"]) if not life.now.expired(said.begun)]
        going = [life for life in there if life.tier == "short" and _is_fact(life.now)]
        self._move(said, going, "long", {moved.entry_id: (moved.from_tier, moved.to_tier) for moved in report.moved})
        staying = {life.id for life in there} - {life.id for life in going}
        if {kept.entry_id for kept in report.kept} != staying:
            said.wrong("keeps others", f"{report.kept}, wanted {staying}")

    def moved(self, said: Said, tenant: str, ids: Sequence[str], to: str) -> None:
        report = said.given()
        there = [self.lives[tenant, i] for i in dict.fromkeys(ids) if (tenant, i) in self.lives]
        going = [life for life in there if TIERS.index(to) > TIERS.index(life.tier)]
        self._move(said, going, to, {moved.entry_id: (moved.from_tier, moved.to_tier) for moved in report.moved})

    def _move(self, said: Said, going: Sequence[Life], to: str, told: dict[str, tuple[str, str]]) -> None:
        wanted = {life.id: (life.tier, to) for life in going}
        if told != wanted:
            said.wrong("moves others", f"{told}, wanted {wanted}")
        for life in going:
            life.tier = to

    def swept_over(self, said: Said, *, sessions_over: int, to_be_asked: int) -> None:
        """What the rules take moves; what expired a day ago goes; nothing remains owed but what the callback is asked beside
        the sweep."""
        report = said.given()
        over = {key: life.now.fields["expires_at"] for key, life in self.lives.items()}
        forgotten = [key for key, end in over.items() if end is not None and end + EXPIRED_GRACE < said.begun]
        for tenant, entry_id in forgotten:
            self.bury(tenant, [entry_id], said.ended)
        taken = self.taken(said.begun)
        for key, (_, to) in taken.items():
            self.lives[key].tier = to
        told = (report.ran, report.still_owed, report.waiting, report.moved, report.expired)
        if told != (True, to_be_asked, (), len(taken), len(forgotten) + sessions_over):
            wanted = f"{len(taken)} moved, {len(forgotten)} + {sessions_over} expired and {to_be_asked} owed"
            said.wrong("does otherwise", f"{report}, wanted {wanted}")

    def planned(self, said: Said) -> None:
        """The plan names what the rules take, and nothing else."""
        plan = said.given()
        told = {(one.tenant, one.id): (one.tier, one.to) for one in plan.planned}
        if (told, len(plan.planned), plan.waiting) != (wanted := self.taken(said.begun), len(told), []):
            said.wrong("plans otherwise", f"{plan.planned}, wanted {wanted}")

    def taken(self, now: datetime) -> dict[Id, tuple[str, str]]:
        """What the rules of a sweep move: what nobody touched for a week and what is beyond the newest of its session leave `short`, what is settled
        goes to `long`."""
        found: dict[Id, tuple[str, str]] = {}
        newer: dict[Id, int] = {}
        for key, life in sorted(self.lives.items(), key=lambda one: (one[1].now.fields["created_at"], one[1].id), reverse=True):
            fields, place = life.now.fields, (key[0], life.scope)
            if life.tier == "short":
                newer[place] = newer.get(place, 0) + 1
                crowded = newer[place] > CROWDED and FACT not in fields["tags"]
                if not life.now.expired(now) and (crowded or now - fields["updated_at"] >= IDLE):
                    found[key] = ("short", "mid")
            elif life.tier == "mid" and not life.now.expired(now) and key[0] == "acme" and kind_of(life.scope) in ("user", "org"):
                doubted = not _is_sure(life.now, 0.5)
                if now - fields["created_at"] >= SETTLED and (fields["type"] == "context" or doubted):
                    found[key] = ("mid", "long")
        return found

    def noted(self, said: Said, tenant: str, scope: str, content: str, session: str, found: dict[str, Any]) -> None:
        """An entry that was made of a message that left the window of a session."""
        wanted: dict[str, Any] = {"tenant": tenant, "scope": scope, "type": "context", "title": None, "content": content, "source": None, "tags": []}
        self._begin(said, found, wanted | {"metadata": {"created_in_session_id": session}, "expires_at": None})

    # -- reading many -------------------------------------------------------------------------------------------------

    def matching(self, asked: Asked, now: datetime) -> tuple[list[Version], bool]:
        """What a question shows, in no order, and whether that is certain."""
        found, certain = list[Version](), True
        for life in self.in_scopes(asked.tenant, asked.scopes):
            version, sure = life.seen(now, asked.as_of, asked.known_at)
            certain = certain and sure
            if version is not None and _passes(version, asked):
                found.append(version)
        return found, certain

    def retrieved(self, asked: Asked, now: datetime, order: str) -> tuple[list[Version], bool]:
        found, certain = self.matching(asked, now)
        return sorted(found, key=lambda version: (version.fields["created_at"], version.fields["id"]), reverse=order == "newest"), certain


def _passes(version: Version, asked: Asked) -> bool:
    fields = version.fields
    return (
        (asked.since is None or fields["created_at"] >= asked.since)
        and (not asked.types or fields["type"] in asked.types)
        and all(tag in fields["tags"] for tag in asked.tags)
    )


def _is_fact(version: Version) -> bool:
    return FACT in version.fields["tags"] or _is_sure(version, SURE)


def _is_sure(version: Version, least: float) -> bool:
    confidence = version.fields["metadata"].get("confidence")
    return isinstance(confidence, int | float) and not isinstance(confidence, bool) and confidence >= least


def _compacted(tenant: str, sources: Sequence[Life], text: str, patch: dict[str, Any]) -> dict[str, Any]:
    fields = [life.now.fields for life in sources]
    ends, kinds = [f["expires_at"] for f in fields], {f["type"] for f in fields}
    merged: dict[str, Any] = {}
    for one in fields:
        merged = one["metadata"] | merged
    tags = list(dict.fromkeys(patch["tags"] if "tags" in patch else [tag for one in fields for tag in one["tags"]]))
    return {
        "tenant": tenant,
        "scope": sources[0].scope,
        "type": kinds.pop() if len(kinds) == 1 else "context",
        "title": None,
        "source": None,
        "content": text,
        "tags": tags,
        "metadata": merged | patch.get("metadata", {}),
        "expires_at": None if None in ends else max(ends),
        "compacted_from_ids": [life.id for life in sources],
        "contributors": [contributor for one in fields for contributor in _contributors(one)],
    }


def _contributors(fields: dict[str, Any]) -> list[dict[str, Any]]:
    if fields["contributors"]:
        return list(fields["contributors"])
    given = fields["metadata"]
    source = given.get("source", fields["source"])
    return [{"entry_id": fields["id"], "agent_id": given.get("agent_id"), "source": source, "confidence": given.get("confidence")}]
