"""What a memory must be, in plain Python: lives of entries with all their versions,
links, graves. It knows what is documented and no code.

Ids, moments and versions are the memory's to choose: they are taken over from its
answers where they can be true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory.orchestrator.storage.settings import EngineSettings
from tests.model import rules
from tests.model.said import Said, differences, plain, same
from tests.model.shelf import Place, Shelf
from tests.model.structured import Condition, merged_data, passes
from tests.model.words import owned

if TYPE_CHECKING:
    from memory.domain.entry import Entry
    from memory.domain.promotion_report import PromotionReport
    from tests.model.sessions.talk import Talk
    from tests.model.sessions.talks import Talks

TIERS = ("short", "mid", "long")
PROMOTABLE = {
    "session": ("user", "workspace", "org", "object", "path"),
    "user": ("workspace", "org"),
    "workspace": ("org",),
    "org": (),
    "object": ("user", "workspace", "org"),
    "path": ("org",),
}
BELOW = "**"
"""What the text of a subtree ends with."""
WHERE_SAID = ("conversation_id", "number_in_conversation", "speaker")
MICROSECOND = timedelta(microseconds=1)
SKEW = timedelta(minutes=5)
EXPIRED_GRACE = EngineSettings().expired_grace
TOMBSTONE_LIFE = timedelta(days=30)

Id = tuple[str, str]
"""Tenant and id."""


def kind_of(scope: str) -> str:
    return scope.partition(":")[0]


def covers(named: Collection[str], scope: str) -> bool:
    """Whether a scope is one of those named, or is in a subtree that is."""
    return scope in named or any(scope.startswith(root) for root in roots_in(named))


def roots_in(named: Iterable[str]) -> list[str]:
    """The paths whose subtrees are named."""
    return [one.removesuffix(BELOW) for one in named if kind_of(one) == "path" and one.endswith("/" + BELOW)]


def above(scope: str) -> list[str]:
    """A path and the paths above it; of another scope, itself."""
    ends = [at for at, letter in enumerate(scope, 1) if letter == "/"]
    return [scope[:end] for end in ends] if kind_of(scope) == "path" else [scope]


def words_in(text: str) -> list[str]:
    return text.replace("'", " ").replace('"', " ").split()


def birth_tier(scope: str) -> str:
    return "short" if kind_of(scope) == "session" else "mid"


@dataclass(slots=True)
class Version:
    """What an entry said from one moment until the next version; the fields as `plain`
    shows them, but for the tier, which is the life's.
    """

    fields: dict[str, Any]
    stored: tuple[datetime, datetime]
    """From when on it may be known, and from when on it must be."""
    unhidden: Version | None = None
    """Of what a view shows: the same with all that it says."""

    @property
    def words(self) -> frozenset[str]:
        said = (
            self.fields["title"] or "",
            self.fields["content"],
            *self.fields["tags"],
            self.fields["source"] or "",
        )
        return frozenset(word for text in said for word in text.split())

    def expired(self, at: datetime) -> bool:
        end = self.fields["expires_at"]
        return end is not None and end < at

    def valid(self, at: datetime) -> bool:
        return bool(self.fields["valid_from"] <= at) and self.before_end(at)

    def before_end(self, at: datetime) -> bool:
        end = self.fields["valid_to"]
        return end is None or at < end


@dataclass(frozen=True, slots=True)
class Source:
    """What an entry was made of: another entry, or the messages of which that other
    entry was noted.
    """

    entry: str
    scope: str
    automatic: bool
    moved: bool = False
    """Whether what was made took its place."""
    is_said: bool = False
    is_direct: bool = True


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
    noted: bool = False
    """Whether it was made of what was said in a session."""
    sources: list[Source] = field(default_factory=list)
    """All that it was made of, with what that was made of."""

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
        """The version that was stored then, and whether that can be told to the
        microsecond.
        """
        for version in reversed(self.versions):
            if version.stored[1] <= moment:
                return version, True
            if version.stored[0] <= moment:
                return version, False
        return None, True

    def seen(
        self, now: datetime, as_of: datetime | None, known_at: datetime | None
    ) -> tuple[Version | None, bool]:
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
    """What is left of a deleted entry: when it fell, what a repeated keyed write is
    told from, and the words that must be gone.
    """

    fallen: datetime
    draft: dict[str, Any] | None
    words: frozenset[str]
    expired: bool = False
    """Whether it had expired before: its key may be free."""


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
    any_tags: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Any], ...] = ()
    before: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None
    where: tuple[Condition, ...] = ()


class Model:
    """Every tenant's memory."""

    def __init__(self, talks: Talks) -> None:
        self.talks = talks
        self.lives: dict[Id, Life] = {}
        self.shelf = Shelf()
        self.graves: dict[Id, Grave] = {}
        self.keys: dict[tuple[str, str, str | None], str] = {}
        """By tenant, scope and key: the id of the entry that was written under it."""
        self.links: dict[str, dict[str, Link]] = {}
        self.summaries: dict[tuple[Any, ...], Id] = {}
        self.copies: dict[tuple[str, str, str], str] = {}
        """By tenant, original and scope: the id of the copy that was made, of one that
        was deleted since too.
        """
        self.holds: dict[tuple[str, str], set[tuple[str, str]]] = {}
        """By tenant and name: what is held, over what and of which."""
        self.evicted = Counter[tuple[str, str]]()
        """By tenant and quota, since the memories that are open were opened."""

    # -- finding -----------------------------------------------------------------------

    def of(self, tenant: str) -> Iterator[Life]:
        return (life for (owner, _), life in self.lives.items() if owner == tenant)

    def in_scopes(self, tenant: str, scopes: Sequence[str]) -> list[Life]:
        return [life for life in self.of(tenant) if covers(scopes, life.scope)]

    def life(self, tenant: str, entry_id: str) -> Life | None:
        return self.lives.get((tenant, entry_id))

    def active(self, tenant: str, entry_id: str, at: datetime) -> Life | None:
        life = self.life(tenant, entry_id)
        return life if life is not None and life.active(at) else None

    def living_words(self) -> set[str]:
        """Every word of every version, wherever in it."""
        texts = (
            str(value)
            for life in self.lives.values()
            for version in life.versions
            for value in version.fields.values()
        )
        return {word for text in texts for word in words_in(text)}

    # -- births ------------------------------------------------------------------------

    def written(
        self, said: Said, tenant: str, drafts: Sequence[dict[str, Any]], *, revive: bool = False
    ) -> list[Id]:
        if any(
            draft.get("created_at") is not None and draft["created_at"] > said.ended + SKEW
            for draft in drafts
        ):
            said.refused("InvalidInput")
            return []
        if self._beyond_quotas(
            said, tenant, [draft["scope"] for draft in drafts if not self._was_written(tenant, draft)]
        ):
            return []
        made = self._written(said, tenant, drafts, revive=revive)
        self.evict(said, tenant, {draft["scope"] for draft in drafts}, made)
        return made

    def _was_written(self, tenant: str, draft: dict[str, Any]) -> bool:
        return (tenant, self.keys.get((tenant, draft["scope"], draft.get("key")), "")) in self.lives

    def _written(
        self, said: Said, tenant: str, drafts: Sequence[dict[str, Any]], *, revive: bool
    ) -> list[Id]:
        used = [self.keys.get((tenant, draft["scope"], draft.get("key"))) for draft in drafts]
        clashes = [
            n
            for n, entry_id in enumerate(used)
            if entry_id is not None and self._clashes((tenant, entry_id), drafts[n], said, revive, n)
        ]
        if clashes:
            return self._written_in_part(said, tenant, drafts, clashes, str(used[clashes[0]]))
        entries = said.given()
        if len(entries) != len(drafts):
            said.wrong("answers otherwise", f"{len(entries)} entries of {len(drafts)} drafts")
        return [
            self._born(said, tenant, draft, plain(entry))
            for draft, entry in zip(drafts, entries, strict=True)
        ]

    def _written_in_part(
        self, said: Said, tenant: str, drafts: Sequence[dict[str, Any]], clashes: Sequence[int], used_by: str
    ) -> list[Id]:
        """A key in conflict keeps no other draft from being stored; the error says
        which were.
        """
        text = said.refused("Conflict" if said.call.startswith("write of") else "PartialWrite")
        if len(drafts) == 1 and used_by not in text:
            said.wrong("names no existing id", text)
        written = (said.failure.written if said.failure is not None else None) or {}
        if set(written) != set(range(len(drafts))) - set(clashes):
            said.wrong("writes others", f"{sorted(written)} of {len(drafts)}, in conflict {clashes}")
        return [self._born(said, tenant, drafts[n], plain(entry)) for n, entry in sorted(written.items())]

    def _clashes(self, key: Id, draft: dict[str, Any], said: Said, revive: bool, n: int) -> bool:
        """Whether the n-th draft of the call is in conflict with what has its key."""
        life = self.lives.get(key)
        if life is not None and life.now.expired(said.begun):
            if self.held(key[0], life):
                return True
            self.bury(key[0], [life.id], said.begun)
        if key in self.lives:
            return self.lives[key].draft != draft
        grave = self.graves.get(key)
        if grave is not None and grave.expired:  # an erasure leaves no note that it had
            return said.failure is not None and n not in (said.failure.written or {})
        return (
            grave is not None
            and not revive
            and not (said.failure is None and said.begun - grave.fallen >= TOMBSTONE_LIFE)
        )

    def _born(self, said: Said, tenant: str, draft: dict[str, Any], found: dict[str, Any]) -> Id:
        there = self.lives.get((tenant, found["id"]))
        if (
            there is not None and draft.get("key") is not None and there.draft == draft
        ):  # a repeat: the first outcome
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
            "data": draft.get("data"),
            "searchable": draft.get("searchable", True),
            "expires_at": draft.get("expires_at"),
            **{name: draft.get(name) for name in WHERE_SAID},
        }
        given, key = draft.get("created_at"), draft.get("key")
        made = self._begin(
            said,
            found,
            wanted,
            None if given is None or given > said.ended else given,
            draft if key else None,
        )
        if key:
            self.keys[tenant, draft["scope"], key] = made[1]
        return made

    def _begin(
        self,
        said: Said,
        found: dict[str, Any],
        wanted: dict[str, Any],
        created_at: datetime | None = None,
        draft: dict[str, Any] | None = None,
    ) -> Id:
        """A new life, as answered: what the memory may choose is taken over where it
        can be true.
        """
        key = (str(wanted["tenant"]), str(found["id"]))
        if key in self.lives:
            said.wrong("gives an id that is taken", found["id"])
        born, scope = found["created_at"], wanted["scope"]
        if not (born == created_at if created_at is not None else said.begun <= born <= said.ended):
            said.wrong(
                "is created at another time",
                f"{born}, between {said.begun} and {said.ended} or given {created_at}",
            )
        tier = (
            found["tier"] if key in self.graves else birth_tier(scope)
        )  # in a second life it stays where its grave was
        chosen = {"id": found["id"], "version": found["version"], "created_at": born}
        nothing = {
            "valid_to": None,
            "promoted_from_id": None,
            "compacted_from_ids": None,
            "contributors": None,
            "origins": None,
        }
        nothing |= {"data": None, "searchable": True} | dict.fromkeys(WHERE_SAID)
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

    # -- changes -----------------------------------------------------------------------

    def updated(self, said: Said, tenant: str, entry_id: str, changes: dict[str, Any]) -> None:
        life = self.active(tenant, entry_id, said.begun)
        if life is None:
            said.refused("NotFound")
            return
        found = plain(said.given())
        if not changes:
            self._match(said, found, life.current())
            return
        merged = (
            {"metadata": life.now.fields["metadata"] | changes["metadata"]} if "metadata" in changes else {}
        )
        distinct = {"tags": list(dict.fromkeys(changes["tags"]))} if "tags" in changes else {}
        wanted = changes | merged | distinct
        if all(name in life.now.fields and same(life.now.fields[name], wanted[name]) for name in wanted):
            self._match(said, found, life.current())  # equal values make no version
            return
        self._next(said, life, found, wanted)

    def _next(
        self, said: Said, life: Life, found: dict[str, Any], changes: dict[str, Any], of: Sequence[str] = ()
    ) -> None:
        """`of`: origins of what brought the change."""
        chosen = {"version": found["version"], "updated_at": found["updated_at"]}
        fields = life.now.fields | changes | chosen
        own = came_of({"source": fields["source"], "origins": None})
        others = [one for one in dict.fromkeys([*came_of(life.now.fields), *of]) if one not in own]
        fields |= {"origins": others} if others else {}
        self._match(said, found, fields | {"tier": life.tier})
        latest = max(
            said.ended, life.now.fields["updated_at"] + MICROSECOND
        )  # it comes after the version before, also where that is ahead of our clock
        if not said.begun <= found["updated_at"] <= latest or found["version"] <= life.now.fields["version"]:
            said.wrong(
                "does not come after the version before",
                f"{chosen} after version {life.now.fields['version']}, begun {said.begun}",
            )
        life.versions.append(Version(fields, (found["updated_at"], found["updated_at"])))

    def retired(
        self, said: Said, tenant: str, entry_id: str, when: datetime | None, read_again: dict[str, Any] | None
    ) -> None:
        """`read_again` is the entry's current version by its history: the call itself
        says only whether it did something.
        """
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

    def deleted(self, said: Said, tenant: str, entry_id: str, scopes: Sequence[str] | None = None) -> None:
        """`scopes`: those of the view that is told what is kept."""
        life = self.life(tenant, entry_id)
        if life is not None and self.held(tenant, life):
            said.refused("LegalHoldActive")
            return
        said.equals(life is not None)
        self.bury(tenant, [entry_id], said.ended)
        self._unmake(tenant, entry_id, said.ended, automatic_only=True)
        kept = sorted(self.made_of(tenant, [entry_id], scopes))
        if life is not None and (sorted(said.value.kept), said.value.is_complete) != (kept, True):
            said.wrong("keeps others", f"{said.value!r}, wanted {kept}")

    def erased(self, said: Said, tenant: str, scope: str) -> None:
        if self.holds_any(tenant, scope):
            said.refused("LegalHoldActive")
            return
        self.counted(said, tenant, [scope])
        self.erase(tenant, scope, said.ended)

    def counted(self, said: Said, tenant: str, scopes: Sequence[str]) -> None:
        """An erasure counts what it erases in these scopes."""
        said.equals(len(self.in_scopes(tenant, scopes)))
        documents = sum(covers(scopes, scope) for owner, scope, _ in self.shelf.all if owner == tenant)
        if said.value.documents != documents:
            said.wrong("counts other documents", f"{said.value.documents}, wanted {documents}")

    def scopes_below(self, tenant: str, subtree: str) -> set[str]:
        """The scopes of a subtree that hold something, expired or not."""
        every = {life.scope for life in self.of(tenant)} | self.shelf.scopes(tenant)
        return {scope for scope in every if covers([subtree], scope)}

    def delete_together(self, tenant: str, ids: Collection[str], at: datetime) -> int:
        """Entries go, with what was made of them automatically; how many of them might
        have gone with another one.
        """
        again = sum(
            any(one.automatic and one.entry in ids for one in self.lives[tenant, entry_id].sources)
            for entry_id in ids
        )
        self.bury(tenant, ids, at)
        for entry_id in ids:
            self._unmake(tenant, entry_id, at, automatic_only=True)
        return again

    def made_of(self, tenant: str, ids: Collection[str], scopes: Sequence[str] | None = None) -> set[str]:
        """What was made of these entries, in some scopes or anywhere, and does not take
        their place.
        """
        return {
            one.id
            for one in (self.of(tenant) if scopes is None else self.in_scopes(tenant, scopes))
            if any(s.entry in ids and not s.is_said and not s.moved for s in one.sources)
        }

    def erase(self, tenant: str, scope: str, at: datetime) -> None:
        """A scope goes, with all that was made of what it had, but for what took the
        place of its sources.
        """
        self.bury(tenant, [life.id for life in self.in_scopes(tenant, [scope])], at)
        self.shelf.remove(self.shelf.in_scope(tenant, scope))
        self._goes_with(
            tenant,
            lambda one: one.scope == scope and not one.moved and (tenant, one.entry) not in self.lives,
            at,
        )

    def unmake_said(self, tenant: str, noted: Collection[str], at: datetime) -> None:
        """Messages went of which these entries were noted: with all that was made of
        them.
        """
        self._goes_with(tenant, lambda one: one.is_said and one.entry in noted, at)

    def _goes_with(self, tenant: str, names: Callable[[Source], bool], at: datetime) -> None:
        for life in [life for life in self.of(tenant) if any(map(names, life.sources))]:
            if (tenant, life.id) in self.lives and not self.held(tenant, life):
                self.bury(tenant, [life.id], at)
                self._unmake(tenant, life.id, at)

    def _unmake(self, tenant: str, entry_id: str, at: datetime, *, automatic_only: bool = False) -> None:
        """What was made of a deleted entry goes too, or only what no caller asked for."""
        for life in list(self.of(tenant)):
            named = [
                one for one in life.sources if one.entry == entry_id and not one.is_said and not one.moved
            ]
            stays = (
                not named
                or (automatic_only and not all(one.automatic for one in named))
                or self.held(tenant, life)
            )
            if not stays and (tenant, life.id) in self.lives:
                self.bury(tenant, [life.id], at)
                self._unmake(tenant, life.id, at, automatic_only=automatic_only)

    def bury(self, tenant: str, ids: Iterable[str], at: datetime) -> None:
        for entry_id in ids:
            life = self.lives.pop((tenant, entry_id), None)
            if life is None:
                continue
            words = frozenset(
                word
                for version in life.versions
                for word in version.words | owned(str(version.fields["data"]))
            )
            self.graves[tenant, entry_id] = Grave(at, life.draft, words, life.now.expired(at))
            links = self.links.get(tenant, {})
            for link in [link for link in links.values() if entry_id in (link.source_id, link.target_id)]:
                del links[link.id]

    def forget_graves(self, now: datetime, keep: int) -> None:
        """What sweeps have forgotten by now, and all but the newest: a long run is not
        to grow.
        """
        for key in [key for key, grave in self.graves.items() if now - grave.fallen > TOMBSTONE_LIFE] + list(
            self.graves
        )[:-keep]:
            self.graves.pop(key, None)
        self.summaries = {identity: made for identity, made in self.summaries.items() if made in self.lives}
        self.keys = {
            name: used_by
            for name, used_by in self.keys.items()
            if {(name[0], used_by)} & (self.lives.keys() | self.graves.keys())
        }
        self.copies = {made: copy for made, copy in self.copies.items() if made[:2] in self.lives}

    # -- derived -----------------------------------------------------------------------

    def promoted(
        self,
        said: Said,
        tenant: str,
        entry_id: str,
        to: str,
        overrides: dict[str, Any],
        *,
        delete_original: bool,
    ) -> Id | None:
        source = self.active(tenant, entry_id, said.begun)
        copy = next(
            (
                life
                for life in self.in_scopes(tenant, [to])
                if life.made_of is not None and life.made_of[0] == entry_id
            ),
            None,
        )
        if source is None:
            self._promoted_before(said, copy, overrides)
            return None
        if kind_of(to) not in PROMOTABLE[kind_of(source.scope)]:
            said.refused("InvalidScopePromotion")
            return None
        if delete_original and self.held(tenant, source):
            said.refused("LegalHoldActive")
            return None
        if self._beyond_quotas(said, tenant, [to] if copy is None else []):
            return None
        if copy is None:
            key = self._copy(said, tenant, source, to, overrides, said.given())
            self.lives[key].sources = _made_of([source], automatic=False, moved=delete_original)
        elif not self._promoted_again(said, copy, source, overrides, delete_original):
            return None
        if delete_original:
            self.bury(tenant, [entry_id], said.ended)
        made = tenant, (copy.id if copy is not None else key[1])
        self.evict(said, tenant, {to}, [made])
        return made

    def _copy(
        self, said: Said, tenant: str, source: Life, to: str, overrides: dict[str, Any], found: Entry
    ) -> Id:
        key = self._begin(said, plain(found), self._copied(tenant, source, to, overrides))
        made = self.lives[key]
        made.made_of, made.overrides = (source.id, source.now.fields["version"]), overrides
        self.copies[tenant, source.id, to] = key[1]
        return key

    @staticmethod
    def _copied(tenant: str, source: Life, to: str, overrides: dict[str, Any]) -> dict[str, Any]:
        fields, kind, name = source.now.fields, *source.scope.split(":", 1)
        session = {"created_in_session_id": name} if kind == "session" else {}
        carried = {
            n: fields[n]
            for n in (
                "type",
                "title",
                "source",
                "content",
                "expires_at",
                "compacted_from_ids",
                "contributors",
                "origins",
                "data",
                "searchable",
                *WHERE_SAID,
            )
        }
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

    def _promoted_again(
        self, said: Said, copy: Life, source: Life, overrides: dict[str, Any], delete_original: bool
    ) -> bool:
        """True where the call may have its effect: the original goes only if the copy
        can be read and says all that it says.
        """
        if copy.overrides != overrides:
            said.refused("Conflict")
            return False
        faithful = copy.active(said.begun) and copy.made_of == (source.id, source.now.fields["version"])
        if (not faithful and delete_original) or not copy.active(said.begun):
            if said.failure is not None:
                said.refused("Conflict", "NotFound")
            return False
        self._made_before(said, copy, [source.id], takes_the_place=delete_original)
        return True

    def _made_before(self, said: Said, made: Life, of: Collection[str], *, takes_the_place: bool) -> None:
        """What was made before is the answer. If it takes the place of its sources only
        now, it says so in another version.
        """
        if takes_the_place:
            self._next(said, made, plain(said.given()), {})
            made.sources = [
                replace(one, moved=True) if one.is_direct and not one.is_said and one.entry in of else one
                for one in made.sources
            ]
        else:
            self._match(said, plain(said.given()), made.current())

    def compacted(
        self,
        said: Said,
        tenant: str,
        ids: Sequence[str],
        text: str | None,
        target: str | None,
        patch: dict[str, Any],
        *,
        delete_sources: bool,
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
        data, differs = merged_data([life.now.fields["data"] for life in sources])
        if len(scopes) > 1 or target not in (None, *scopes) or text is None or differs:
            said.refused("CompactionError")
            return None
        wanted = _compacted(tenant, sources, text, patch) | {"data": data}
        identity = (
            tenant,
            tuple((s.id, s.now.fields["version"]) for s in sources),
            text,
            repr(wanted["tags"]),
            repr(sorted(wanted["metadata"].items(), key=lambda item: item[0])),
        )
        there = self.lives.get(self.summaries.get(identity, ("", "")))
        if delete_sources and any(self.held(tenant, life) for life in sources):
            said.refused("LegalHoldActive")
            return None
        if not delete_sources and self._beyond_quotas(
            said, tenant, [] if there is not None else list(scopes)
        ):
            return None
        if there is not None:
            self._made_before(said, there, distinct, takes_the_place=delete_sources)
            key = (tenant, there.id)
        else:
            key = self.summaries[identity] = self._begin(said, plain(said.given()), wanted)
            self.lives[key].sources = _made_of(sources, automatic=False, moved=delete_sources)
        if delete_sources:
            self.bury(tenant, distinct, said.ended)
        else:
            self.evict(said, tenant, scopes, [key])
        return key

    # -- relations ---------------------------------------------------------------------

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
        if (made.source_id, made.label, made.target_id) != (
            source_id,
            label,
            target_id,
        ) or not said.begun <= made.created_at <= said.ended:
            said.wrong("answers another link", repr(made))
        self.links.setdefault(tenant, {})[made.id] = Link(
            made.id, source_id, target_id, label, made.created_at
        )
        return str(made.id)

    def unrelated(self, said: Said, tenant: str, link_id: str) -> None:
        """A link goes with the scope of its source: held by that, and with either of
        the entries.
        """
        link = self.links.get(tenant, {}).get(link_id)
        ends = [] if link is None else [("entry", link.source_id), ("entry", link.target_id)]
        if link is not None and (
            set(ends) & self._held(tenant) or self.holds_all(tenant, self.lives[tenant, link.source_id].scope)
        ):
            said.refused("LegalHoldActive")
            return
        said.equals(self.links.get(tenant, {}).pop(link_id, None) is not None)

    def related_to(
        self,
        tenant: str,
        source_id: str | None = None,
        target_id: str | None = None,
        label: str | None = None,
    ) -> list[Link]:
        """Newest first."""
        given = (source_id, target_id, label)
        all_of = self.links.get(tenant, {}).values()
        found = [
            link
            for link in all_of
            if all(
                want in (None, has)
                for want, has in zip(given, (link.source_id, link.target_id, link.label), strict=True)
            )
        ]
        return sorted(found, key=lambda link: link.created_at, reverse=True)

    # -- tiers -------------------------------------------------------------------------

    def to_copy(self, tenant: str, session: str, now: datetime) -> list[tuple[Life, str | None]]:
        """What the end of a session copies, and where: None where that is to the user,
        and nobody says who that is.
        """
        talk = self.talks.get(tenant, session, now)
        user = None if talk is None or talk.user is None else f"user:{talk.user}"
        copying: list[tuple[Life, str | None]] = []
        there = [
            life
            for life in self.in_scopes(tenant, [f"session:{session}"])
            if life.tier == "short" and not life.now.expired(now)
        ]
        for life in sorted(there, key=lambda life: (life.now.fields["created_at"], life.id)):
            copying += [(life, user)] if rules.FACT not in life.now.fields["tags"] else []
            copying += [(life, rules.SHARED_WITH)] if rules.is_sure(life.now.fields, rules.SHARED) else []
        return copying

    def session_over(
        self,
        said: Said,
        tenant: str,
        session: str,
        report: PromotionReport | None,
        copying: Sequence[tuple[Life, str | None]],
        found: Mapping[Any, Entry],
    ) -> list[str]:
        """Facts and what is nearly certain go to `long`, copies go where the rules say;
        the rest stays. Entries past their expiry are not spoken of. `found`: by
        original and scope, the copies that are there and that nobody knew of. The ids
        of those that were made.
        """
        copied, failed = list[tuple[str, str, str]](), list[str]()
        for life, to in copying:
            made = (
                None if to is None else self._copied_by_rule(said, tenant, life, to, found.get((life.id, to)))
            )
            copied += [(life.id, made, str(to))] if made else []
            failed += [life.id] if made is None else []
        there = [
            life
            for life in self.in_scopes(tenant, [f"session:{session}"])
            if not life.now.expired(said.begun)
        ]
        going = self._goes_on(tenant, session, said.begun)
        if report is not None:
            staying = {life.id for life in there} - {life.id for life in going}
            if sorted(kept.entry_id for kept in report.kept) != sorted([*failed, *staying]):
                said.wrong("keeps others", f"{report.kept}, wanted {staying} and {failed}")
            if sorted((one.entry_id, one.copy_id, one.to_scope) for one in report.copied) != sorted(copied):
                said.wrong("copies others", f"{report.copied}, wanted {copied}")
            self._told_moves(
                said,
                going,
                "long",
                {moved.entry_id: (moved.from_tier, moved.to_tier) for moved in report.moved},
            )
        for life in going:
            life.tier = "long"
        return [copy_id for _, copy_id, _ in copied]

    def _copied_by_rule(
        self, said: Said, tenant: str, source: Life, to: str, found: Entry | None
    ) -> str | None:
        """The id of the copy that was made now; empty where it stood before, None where
        it cannot be made.
        """
        copy = next(
            (
                life
                for life in self.in_scopes(tenant, [to])
                if life.made_of is not None and life.made_of[0] == source.id
            ),
            None,
        )
        if copy is not None:
            there = not copy.overrides and (source.active(said.begun) or copy.active(said.begun))
            return "" if there else None
        before = self.copies.get((tenant, source.id, to))
        if before is not None and found is None:
            return None  # as long as its tombstone stands
        if not source.active(said.begun) or self._is_full(tenant, [to]):
            if found is not None:
                said.wrong("copies what it must not", repr(found))
            return None
        if found is None:
            said.wrong("copies not", f"{source.id} to {to}")
        grave = None if before is None else self.graves.get((tenant, before))
        if grave is not None and said.begun - grave.fallen < TOMBSTONE_LIFE:
            said.wrong("copies again what was deleted", repr(found))
        key = self._copy(said, tenant, source, to, {}, found)
        self.lives[key].sources = _made_of([source], automatic=True)
        self.evict(said, tenant, {to}, [key])
        return key[1]

    def moved(self, said: Said, tenant: str, ids: Sequence[str], to: str) -> None:
        report = said.given()
        there = [self.lives[tenant, i] for i in dict.fromkeys(ids) if (tenant, i) in self.lives]
        going = [life for life in there if TIERS.index(to) > TIERS.index(life.tier)]
        self._told_moves(
            said, going, to, {moved.entry_id: (moved.from_tier, moved.to_tier) for moved in report.moved}
        )
        for life in going:
            life.tier = to

    @staticmethod
    def _told_moves(said: Said, going: Sequence[Life], to: str, told: dict[str, tuple[str, str]]) -> None:
        wanted = {life.id: (life.tier, to) for life in going}
        if told != wanted:
            said.wrong("moves others", f"{told}, wanted {wanted}")

    def expired(self, said: Said) -> tuple[int, int]:
        """What expired a day ago goes, entries and sessions, but for what is held: how
        many went and how many are held.
        """
        gone, held = 0, 0
        for (tenant, _), life in list(self.lives.items()):
            end = life.now.fields["expires_at"]
            if end is None or end + EXPIRED_GRACE >= said.begun:
                continue
            stays = self.held(tenant, life)
            gone, held = gone + (not stays), held + stays
            if not stays:
                self.bury(tenant, [life.id], said.ended)
        for place in self._expired_documents(said.begun):
            stays = self.holds_all(place[0], place[1])
            gone, held = gone + (not stays), held + stays
            self.shelf.remove([] if stays else [place])
        for (tenant, session), talk in list(self.talks.all.items()):
            if talk.is_over(said.begun - EXPIRED_GRACE):
                stays = self.holds_all(tenant, f"session:{session}")
                gone, held = gone + (not stays), held + stays
                if not stays:
                    self.talks.expires(self, talk, said.ended)
        return gone, held

    def _expired_documents(self, now: datetime) -> list[Place]:
        """Those that expired a day ago."""
        return [place for place, one in self.shelf.all.items() if one.expired(now - EXPIRED_GRACE)]

    def retire(self, said: Said) -> tuple[int, int]:
        """The entries that rules delete go: how many, and how many are held."""
        going = [
            (tenant, life)
            for (tenant, _), life in self.lives.items()
            if rules.deletes(tenant, life, said.begun)
        ]
        free = [(tenant, life) for tenant, life in going if not self.held(tenant, life)]
        for tenant, life in free:
            self.bury(tenant, [life.id], said.ended)
        return len(free), len(going) - len(free)

    def let_go(self, said: Said) -> tuple[int, int]:
        """The kept versions that rules let go: how many, and how many are held."""
        gone, held = 0, 0
        for (tenant, _), life in self.lives.items():
            going = rules.lets_go(tenant, life, said.begun)
            if self.held(tenant, life):
                held += going
            else:
                gone += going
                del life.versions[:going]
        return gone, held

    def move_on(self, said: Said) -> tuple[int, int]:
        """What rules and the policy take moves: how many, and how many the policy fails
        on.
        """
        taken, failing = self.taken(said.begun)
        for key, (_, to, _) in taken.items():
            self.lives[key].tier = to
        return len(taken), failing

    def planned(self, said: Said) -> None:
        """The plan names what expires and what the rules take, each once, and nothing
        else; and says of which sessions callbacks are asked.
        """
        plan, now, wanted = said.given(), said.begun, self._expires(said.begun)
        told: list[tuple[str, ...]] = [
            (one.action, one.collection, one.tenant, one.id, one.rule, one.tier, one.to)
            if one.collection == "entries"
            else (one.action, one.collection, one.tenant, one.scope, one.rule, "", "")
            for one in plan.planned
        ]
        over = {(tenant, of) for _, _, tenant, of, *_ in wanted}
        ends = [talk for talk in self.talks.all.values() if talk.owes_its_end and not talk.is_over(now)]
        wanted += self._planned_ends(ends, wanted, told, now)  # pending steps come before the rules
        wanted += self._planned_deletions(wanted, now)
        for talk in self.talks.all.values():
            if (rule := talk.taken(now)) is not None and (talk.tenant, f"conversation:{talk.id}") not in over:
                then = "delete" if talk.status == "ended" else "end"
                held = then == "delete" and (
                    bool(talk.owed) or self.holds_all(talk.tenant, f"session:{talk.id}")
                )
                wanted += (
                    [] if held else [(then, "sessions", talk.tenant, f"conversation:{talk.id}", rule, "", "")]
                )
        ends = [
            talk for talk in self.talks.all.values() if talk.status != "ended" and talk.taken(now) is not None
        ]
        wanted += self._planned_ends(ends, wanted, told, now)
        for (tenant, entry_id), life in self.lives.items():
            if not self.held(tenant, life) and (tenant, entry_id) not in _gone_in(wanted):
                versions = (
                    "delete",
                    "entry_versions",
                    tenant,
                    life.scope,
                    "newest" if tenant == "acme" else "past",
                    "",
                    "",
                )
                wanted += [versions] * rules.lets_go(tenant, life, now)
        taken, failing = self.taken(now, without=_gone_in(wanted) | _moved_in(wanted))
        wanted += [("move", "entries", *key, rule, tier, to) for key, (tier, to, rule) in taken.items()]
        asked = {talk.id for talk in self.talks.all.values() if talk.owed and not talk.is_over(now)}
        waiting = {
            line: {session for session in asked if f"of session '{session}'" in line} for line in plan.waiting
        }
        others = [line for line, sessions in waiting.items() if not sessions]
        if (
            sorted(told) != sorted(wanted)
            or len(others) != failing
            or set().union(*waiting.values()) != asked
        ):
            more, less = Counter(told) - Counter(wanted), Counter(wanted) - Counter(told)
            said.wrong(
                "plans otherwise",
                f"more {more}, less {less}, waiting {plan.waiting}, wanted {failing} and sessions {asked}",
            )

    def _planned_deletions(self, planned: Sequence[tuple[str, ...]], now: datetime) -> list[tuple[str, ...]]:
        """What rules delete of what is not gone by then."""
        gone, moved = _gone_in(planned), _moved_in(planned)
        there = [
            (key, replace(life, tier="long") if key in moved else life)
            for key, life in self.lives.items()
            if key not in gone
        ]
        free = [(key, life) for key, life in there if not self.held(key[0], life)]
        return [
            ("delete", "entries", *key, rule, life.tier, "")
            for key, life in free
            if (rule := rules.deletes(key[0], life, now))
        ]

    def _planned_ends(
        self,
        ends: Sequence[Talk],
        planned: Sequence[tuple[str, ...]],
        told: Sequence[tuple[str, ...]],
        now: datetime,
    ) -> list[tuple[str, ...]]:
        """What the ends of sessions move and copy, and what quotas evict for the
        copies.
        """
        gone = _gone_in(planned)
        onward = [
            (talk.tenant, life.id) for talk in ends for life in self._goes_on(talk.tenant, talk.id, now)
        ]
        copies = [
            one
            for talk in ends
            for one, surely in self._copied_at_end(talk, now)
            if one[2:4] not in gone and (surely or one in told)
        ]
        evicted = [
            ("evict", "entries", *key, quota, self.lives[key].tier, "")
            for key, quota in self._evicted_for(copies, gone)
        ]
        return [
            *(("move", "entries", *key, "facts-last", "short", "long") for key in onward if key not in gone),
            *copies,
            *evicted,
        ]

    def _evicted_for(self, copies: Sequence[tuple[str, ...]], gone: Collection[Id]) -> list[tuple[Id, str]]:
        """What goes behind these copies, and for which quota."""
        evicted: list[tuple[Id, str]] = []
        for (tenant, to), many in Counter((one[2], one[-1]) for one in copies).items():
            for quota in _evicting(tenant, [to]):
                there = [life for life in self.in_scopes(tenant, [to]) if (tenant, life.id) not in gone]
                going = self._first_to_go(tenant, quota, there)[
                    : max(0, len(there) + many - quota["entries"])
                ]
                evicted += [((tenant, life.id), quota["name"]) for life in going]
        return evicted

    def _expires(self, now: datetime) -> list[tuple[str, ...]]:
        """What expired a day ago, entries, sessions and what was made of these, as a
        plan tells it.
        """
        lives = [
            (key[0], life)
            for key, life in self.lives.items()
            if (end := life.now.fields["expires_at"]) is not None and end + EXPIRED_GRACE < now
        ]
        talks = [
            talk
            for talk in self.talks.all.values()
            if talk.is_over(now - EXPIRED_GRACE) and not self.holds_all(talk.tenant, f"session:{talk.id}")
        ]
        lives += [
            (talk.tenant, life)
            for talk in talks
            for one in self.talks.made_of(talk)
            if (life := self.life(talk.tenant, one)) is not None
        ]
        free = {(tenant, life.id): life for tenant, life in lives if not self.held(tenant, life)}
        wanted: list[tuple[str, ...]] = [
            ("expire", "entries", *key, "", life.tier, "") for key, life in free.items()
        ]
        wanted += [
            ("expire", "documents", tenant, scope, "", "", "")
            for tenant, scope, _ in self._expired_documents(now)
            if not self.holds_all(tenant, scope)
        ]
        return wanted + [
            ("expire", "sessions", talk.tenant, f"conversation:{talk.id}", "", "", "") for talk in talks
        ]

    def _goes_on(self, tenant: str, session: str, now: datetime) -> list[Life]:
        """What the end of a session moves."""
        there = [life for life in self.in_scopes(tenant, [f"session:{session}"]) if not life.now.expired(now)]
        return [life for life in there if life.tier == "short" and _is_fact(life.now)]

    def _copied_at_end(self, talk: Talk, now: datetime) -> list[tuple[tuple[str, ...], bool]]:
        """What the end of a session copies if quotas have room, as a plan tells it; and
        whether that is sure: it is not where an earlier copy's tombstone may stand or
        not.
        """
        found: list[tuple[tuple[str, ...], bool]] = []
        for life, to in self.to_copy(talk.tenant, talk.id, now):
            if to is None or not life.active(now):
                continue
            before = self.copies.get((talk.tenant, life.id, to))
            grave = None if before is None else self.graves.get((talk.tenant, before))
            there = any(
                copy.made_of is not None and copy.made_of[0] == life.id
                for copy in self.in_scopes(talk.tenant, [to])
            )
            if not there and (grave is None or now - grave.fallen >= TOMBSTONE_LIFE):
                rule = "shared" if to == rules.SHARED_WITH else "known"
                found.append((("copy", "entries", talk.tenant, life.id, rule, life.tier, to), before is None))
        return found

    def taken(
        self, now: datetime, *, without: Collection[Id] = ()
    ) -> tuple[dict[Id, tuple[str, str, str]], int]:
        """What a sweep moves, by which rule: what nobody touched for a week and what is
        beyond the newest of its session leave `short`, what is settled and what was
        seen goes to `long`; and of how many the policy cannot speak. `without`: what
        has gone or been moved by then.
        """
        found: dict[Id, tuple[str, str, str]] = {}
        newer, failing = dict[Id, int](), 0
        for key, life in sorted(
            self.lives.items(), key=lambda one: (one[1].now.fields["created_at"], one[1].id), reverse=True
        ):
            if key in without:
                continue
            fields, place = life.now.fields, (key[0], life.scope)
            if life.tier == "short":
                newer[place] = newer.get(place, 0) + 1
                crowded = newer[place] > rules.CROWDED and rules.FACT not in fields["tags"]
                idle = now - rules.idle_since(fields) >= rules.IDLE
                if not life.now.expired(now) and (crowded or idle):
                    found[key] = ("short", "mid", "idle-sessions" if idle else "crowded")
            elif life.tier == "mid" and not life.now.expired(now):
                settles = fields["type"] == "context" or not rules.is_sure(fields, 0.5)
                if (
                    key[0] == "acme"
                    and kind_of(life.scope) in ("user", "org")
                    and now - fields["created_at"] >= rules.SETTLED
                    and settles
                ):
                    found[key] = ("mid", "long", "settled")
                elif now - fields["created_at"] >= rules.STANDS:
                    said = fields["content"].split()
                    failing += rules.REFUSED in said
                    found |= (
                        {key: ("mid", "long", "seen")}
                        if rules.SEEN in said and rules.REFUSED not in said
                        else {}
                    )
        return found, failing

    # -- quotas ------------------------------------------------------------------------

    def _beyond_quotas(self, said: Said, tenant: str, scopes: Sequence[str]) -> bool:
        """Whether newcomers of these scopes are too many, and were refused. What a
        process found free a minute ago it may take still.
        """
        beyond = self._is_full(tenant, scopes)
        if not beyond or (beyond == "perhaps" and said.failure is None):
            return False
        said.refused("QuotaExceeded")
        return True

    def _is_full(self, tenant: str, scopes: Sequence[str]) -> str:
        """Empty where there is room; "perhaps" where a process may know no better."""
        found = ""
        for quota in rules.QUOTAS:
            for place, newcomers in _places(quota, tenant, scopes).items():
                there = sum(bool(_places(quota, tenant, [life.scope]).get(place)) for life in self.of(tenant))
                if newcomers > quota["entries"] or (
                    quota.get("then") != "evict" and there + newcomers > quota["entries"]
                ):
                    spare = quota["entries"] // 16
                    if newcomers > spare or there + newcomers > quota["entries"] + 2 * spare:
                        return "full"
                    found = "perhaps"
        return found

    def evict(self, said: Said, tenant: str, scopes: Collection[str], written: Collection[Id]) -> None:
        """Behind a write: the first in order go, until there are as many as may be.
        What was written just now stays, what a rule keeps, and what is held.
        """
        for scope in sorted(scopes):
            for quota in _evicting(tenant, [scope]):
                there = self.in_scopes(tenant, [scope])
                may = self._first_to_go(
                    tenant, quota, [life for life in there if (tenant, life.id) not in written]
                )
                going = may[: max(0, len(there) - quota["entries"])]
                self.bury(tenant, [life.id for life in going], said.ended)
                self.evicted[tenant, quota["name"]] += len(going)

    def _first_to_go(self, tenant: str, quota: dict[str, Any], there: Sequence[Life]) -> list[Life]:
        may = [life for life in there if not self.held(tenant, life) and not rules.kept_by(life.now.fields)]
        return sorted(may, key=lambda life: _first_to_go(life, quota.get("evict", "oldest")))

    # -- legal holds -------------------------------------------------------------------

    def _held(self, tenant: str) -> set[tuple[str, str]]:
        return {one for (owner, _), held in self.holds.items() if owner == tenant for one in held}

    def holds_all(self, tenant: str, scope: str) -> bool:
        """Whether all of a scope is held: by itself, with the tenant or with a user."""
        kind, _, name = scope.partition(":")
        talk = self.talks.all.get((tenant, name)) if kind == "session" else None
        user = name if kind == "user" else None if talk is None else talk.user
        scopes = {("scope", one) for one in above(scope)}
        return bool({("tenant", tenant), ("user", user), *scopes} & self._held(tenant))

    def held(self, tenant: str, life: Life) -> bool:
        return ("entry", life.id) in self._held(tenant) or self.holds_all(tenant, life.scope)

    def holds_any(self, tenant: str, scope: str) -> bool:
        """Whether a scope is held, or an entry in it."""
        return self.holds_all(tenant, scope) or any(
            self.held(tenant, life) for life in self.in_scopes(tenant, [scope])
        )

    def bury_free(self, tenant: str, ids: Iterable[str], at: datetime) -> None:
        """Those of them go that are not held."""
        self.bury(
            tenant,
            [
                entry_id
                for entry_id in ids
                if (life := self.life(tenant, entry_id)) is not None and not self.held(tenant, life)
            ],
            at,
        )

    def unpin(self, tenant: str, session: str) -> None:
        """What names a session that is gone names none any more, but for what was made
        of it. What it said before goes on saying it.
        """
        for (owner, _), life in self.lives.items():
            if owner == tenant and life.now.fields["conversation_id"] == session and not life.noted:
                life.versions[-1] = Version(
                    {**life.now.fields, "conversation_id": None, "number_in_conversation": None},
                    life.now.stored,
                )

    # -- made of what was said ---------------------------------------------------------

    def noted(
        self, said: Said, tenant: str, scope: str, content: str, session: str, found: dict[str, Any]
    ) -> None:
        """An entry that was made of a message that left the window of a session. Of
        many made at once a sweep moves the first on.
        """
        wanted: dict[str, Any] = {
            "tenant": tenant,
            "scope": scope,
            "type": "context",
            "title": None,
            "content": content,
            "source": None,
            "tags": [],
        }
        birth = birth_tier(scope)
        key = self._begin(
            said,
            found | {"tier": birth},
            wanted
            | {
                "metadata": {"created_in_session_id": session},
                "expires_at": None,
                "conversation_id": session,
            },
        )
        self.lives[key].noted = True
        self.lives[key].sources = [Source(key[1], "", automatic=True, is_said=True)]
        if found["tier"] != birth and (birth, found["tier"]) != ("short", "mid"):
            said.wrong("notes it in another tier", found["tier"])

    # -- reading many ------------------------------------------------------------------

    def passing(self, asked: Asked) -> list[Life]:
        """Those whose current version a question would show, whenever that is valid."""
        return [life for life in self.in_scopes(asked.tenant, asked.scopes) if _passes(life.now, asked)]

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
        ordered = sorted(
            found, key=lambda version: version.fields["created_at"]
        )  # those of one moment as they were written
        return ordered[::-1] if order == "newest" else ordered, certain


def _passes(version: Version, asked: Asked) -> bool:
    fields = version.fields
    return (
        (asked.since is None or fields["created_at"] >= asked.since)
        and (not asked.types or fields["type"] in asked.types)
        and (asked.before is None or fields["created_at"] < asked.before)
        and all(tag in fields["tags"] for tag in asked.tags)
        and (not asked.any_tags or any(tag in fields["tags"] for tag in asked.any_tags))
        and all(
            name in fields["metadata"] and same(fields["metadata"][name], value)
            for name, value in asked.metadata
        )
        and all(passes(one, fields) for one in asked.where)
    )


def _made_of(sources: Sequence[Life], *, automatic: bool, moved: bool = False) -> list[Source]:
    inherited = [
        replace(one, automatic=one.automatic and automatic, is_direct=False)
        for life in sources
        for one in life.sources
    ]
    return [*(Source(life.id, life.scope, automatic, moved) for life in sources), *inherited]


def _is_fact(version: Version) -> bool:
    return rules.FACT in version.fields["tags"] or rules.is_sure(version.fields, rules.SURE)


def _places(quota: dict[str, Any], tenant: str, scopes: Sequence[str]) -> Counter[str]:
    """What a quota counts together, a scope or the tenant, and how many of these scopes
    are of it.
    """
    counted = [
        scope for scope in scopes if tenant in quota["tenants"] and kind_of(scope) in quota["scope_kinds"]
    ]
    return Counter("" if quota.get("per") == "tenant" else scope for scope in counted)


def _evicting(tenant: str, scopes: Sequence[str]) -> list[dict[str, Any]]:
    """The quotas that evict, of those that count these scopes each for itself."""
    found = [
        quota for quota in rules.QUOTAS if quota.get("then") == "evict" and _places(quota, tenant, scopes)
    ]
    return sorted(found, key=lambda quota: str(quota["name"]))


def _gone_in(planned: Iterable[tuple[str, ...]]) -> set[Id]:
    return {
        (one[2], one[3]) for one in planned if one[0] in ("delete", "expire", "evict") and one[1] == "entries"
    }


def _moved_in(planned: Iterable[tuple[str, ...]]) -> set[Id]:
    return {(one[2], one[3]) for one in planned if one[0] == "move"}


def _first_to_go(life: Life, order: str) -> tuple[Any, ...]:
    confidence = rules.confidence_of(life.now.fields) if order == "least_confident" else None
    return (confidence is not None, confidence or 0, life.now.fields["created_at"], life.id)


def _compacted(tenant: str, sources: Sequence[Life], text: str, patch: dict[str, Any]) -> dict[str, Any]:
    fields = [life.now.fields for life in sources]
    ends, kinds = [f["expires_at"] for f in fields], {f["type"] for f in fields}
    merged: dict[str, Any] = {}
    for one in fields:
        merged = one["metadata"] | merged
    tags = list(
        dict.fromkeys(patch["tags"] if "tags" in patch else [tag for one in fields for tag in one["tags"]])
    )
    return {
        "tenant": tenant,
        "scope": sources[0].scope,
        "type": kinds.pop() if len(kinds) == 1 else "context",
        "title": None,
        "source": None,
        "content": text,
        "searchable": all(one["searchable"] for one in fields),
        "tags": tags,
        "metadata": merged | patch.get("metadata", {}),
        "expires_at": None if None in ends else max(ends),
        "origins": list(dict.fromkeys(one for of in fields for one in came_of(of))) or None,
        "compacted_from_ids": [life.id for life in sources],
        "contributors": [contributor for one in fields for contributor in _contributors(one)],
    }


def came_of(fields: dict[str, Any]) -> list[str]:
    """What an entry comes of: its source, and what else went into it."""
    return [*([f"source:{fields['source']}"] if fields["source"] else []), *(fields["origins"] or ())]


def _contributors(fields: dict[str, Any]) -> list[dict[str, Any]]:
    if fields["contributors"]:
        return list(fields["contributors"])
    given = fields["metadata"]
    source = fields["source"] or given.get("source")
    return [
        {
            "entry_id": fields["id"],
            "agent_id": given.get("agent_id"),
            "source": source,
            "confidence": given.get("confidence"),
        }
    ]
