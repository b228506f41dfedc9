"""More lying stores: about what they make of the values they are given, what they
refuse, and what they share with their callers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.frozen import thaw
from memory.ports.collections import Collection
from memory.ports.query import Hit, Page, Query, Search
from memory.ports.record import Key, Mark, PendingStep, Record, Standing, Stored, Tombstone
from memory.ports.writes import Annotate, Delete, Outcome, Put, Release, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter

JSON_KEPT = "test_json_comes_back_as_the_same_text_wherever_it_stands"
KEPT = "test_strange_but_lawful_contents_come_back_exactly"
REFUSED = "test_what_no_store_keeps_is_rejected_by_name_and_its_neighbours_are_applied"
LONG = "test_long_texts_fields_and_tags_come_back_whole"


def _mapped(value: Any, change: Callable[[Any], Any], depth: int = 0, least: int = 0) -> Any:
    """A JSON value with each leaf at least so deep changed."""
    if isinstance(value, Mapping):
        return {k: _mapped(v, change, depth + 1, least) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(v, change, depth + 1, least) for v in value]
    return change(value) if depth >= least else value


def _on_bodies(write: Write, change: Callable[[Any], Any], least: int = 0) -> Write:
    if isinstance(write, Put):
        return replace(write, record=replace(write.record, body=_mapped(write.record.body, change, 0, least)))
    return write


def _on_owed(write: Write, change: Callable[[Any], Any]) -> Write:
    def steps(owed: tuple[PendingStep, ...]) -> tuple[PendingStep, ...]:
        return tuple(PendingStep(o.id, o.step, _mapped(o.data, change)) for o in owed)

    if isinstance(write, Put):
        return replace(write, record=replace(write.record, owed=steps(write.record.owed)))
    return replace(write, owed=steps(write.owed)) if isinstance(write, Delete | Release) else write


class _Changes(PerWrite):
    """Stores something else than it was given."""

    def changed(self, write: Write) -> Write:
        raise NotImplementedError

    def lie(self, write: Write) -> Outcome:
        return super().lie(self.changed(write))


def _number(value: Any) -> Any:
    """As an engine without booleans keeps it."""
    return int(value) if isinstance(value, bool) else value


def _whole(value: Any) -> Any:
    """As JavaScript prints it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _double(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@faulty_adapter(JSON_KEPT)
class TurnsTrueIntoOneInSteps(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_owed(write, _number)


@faulty_adapter(JSON_KEPT)
class TurnsTrueIntoOneInNotes(_Changes):
    def changed(self, write: Write) -> Write:
        return replace(write, note=_mapped(write.note, _number)) if isinstance(write, Delete) else write


@faulty_adapter(JSON_KEPT)
class PrintsWholeRealsAsIntegersInNotes(_Changes):
    def changed(self, write: Write) -> Write:
        return replace(write, note=_mapped(write.note, _whole)) if isinstance(write, Delete) else write


@faulty_adapter(JSON_KEPT)
class PrintsWholeRealsAsIntegersDeepDown(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_bodies(write, _whole, 3)


@faulty_adapter(JSON_KEPT)
class KeepsDeepNumbersAsDoubles(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_bodies(write, _double, 3)


@faulty_adapter(JSON_KEPT)
class KeepsNumbersOfStepsAsDoubles(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_owed(write, _double)


@faulty_adapter(JSON_KEPT)
class TakesDigitsForNumbers(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_bodies(write, lambda v: int(v) if isinstance(v, str) and v.isdigit() else v)


@faulty_adapter(JSON_KEPT)
class KeepsStepsAsASet(_Changes):
    def changed(self, write: Write) -> Write:
        if isinstance(write, Put):
            distinct = {o.step: o for o in write.record.owed}
            return replace(
                write,
                record=replace(write.record, owed=tuple(sorted(distinct.values(), key=lambda o: o.step))),
            )
        return write


@faulty_adapter(JSON_KEPT)
class DropsNullsFromSteps(_Changes):
    def changed(self, write: Write) -> Write:
        def without(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {k: without(v) for k, v in value.items() if v is not None}
            return [without(v) for v in value] if isinstance(value, list) else value

        if isinstance(write, Put):
            return replace(
                write,
                record=replace(
                    write.record,
                    owed=tuple(PendingStep(o.id, o.step, without(o.data)) for o in write.record.owed),
                ),
            )
        return write


@faulty_adapter(KEPT)
class EndsTextsAtNul(_Changes):
    """As C does."""

    def changed(self, write: Write) -> Write:
        return _on_bodies(write, lambda v: v.partition("\x00")[0] if isinstance(v, str) else v)


@faulty_adapter(KEPT)
class DropsNulFromFields(_Changes):
    def changed(self, write: Write) -> Write:
        if isinstance(write, Put):
            fields = {
                n: v.replace("\x00", "") if isinstance(v, str) else v for n, v in write.record.fields.items()
            }
            return replace(write, record=replace(write.record, fields=fields))
        return write


@faulty_adapter(KEPT)
class DropsNulFromTags(_Changes):
    def changed(self, write: Write) -> Write:
        had = write.record.fields.get("tags") if isinstance(write, Put) else None
        if isinstance(write, Put) and isinstance(had, tuple):
            tags = tuple(t.replace("\x00", "") for t in had)
            return replace(write, record=replace(write.record, fields={**write.record.fields, "tags": tags}))
        return write


@faulty_adapter(KEPT)
class FlattensWhatIsDeep(_Changes):
    def changed(self, write: Write) -> Write:
        def cut(value: Any, room: int) -> Any:
            if isinstance(value, Mapping):
                return {k: cut(v, room - 1) for k, v in value.items()} if room else str(value)
            return (
                ([cut(v, room - 1) for v in value] if room else str(value))
                if isinstance(value, list)
                else value
            )

        return (
            replace(write, record=replace(write.record, body=cut(write.record.body, 40)))
            if isinstance(write, Put)
            else write
        )


@faulty_adapter(KEPT)
class DropsZonesOfEnds(_Changes):
    """What stands on the clock there, taken for UTC."""

    def changed(self, write: Write) -> Write:
        if isinstance(write, Delete | Release) and write.discard_at is not None:
            return replace(write, discard_at=write.discard_at.replace(tzinfo=UTC))
        return write


@faulty_adapter(KEPT)
class DropsZonesOfAccesses(_Changes):
    def changed(self, write: Write) -> Write:
        if isinstance(write, Annotate) and write.accessed_at is not None:
            return replace(write, accessed_at=write.accessed_at.replace(tzinfo=UTC))
        return write


@faulty_adapter(KEPT)
class RoundsEndsToSeconds(_Changes):
    def changed(self, write: Write) -> Write:
        if isinstance(write, Delete | Release | Annotate) and write.discard_at is not None:
            return replace(write, discard_at=write.discard_at.replace(microsecond=0))
        return write


def _cut_fields(record: Record, most: int) -> Record:
    return replace(
        record, fields={n: v[:most] if isinstance(v, str) else v for n, v in record.fields.items()}
    )


@faulty_adapter(LONG)
class CutsLongBodies(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_bodies(write, lambda v: v[: 2**19] if isinstance(v, str) else v)


@faulty_adapter(LONG)
class CutsLongTexts(_Changes):
    def changed(self, write: Write) -> Write:
        if isinstance(write, Put):
            return replace(
                write,
                record=replace(write.record, texts={n: t[: 2**18] for n, t in write.record.texts.items()}),
            )
        return write


@faulty_adapter(LONG)
class CutsLongFields(_Changes):
    def changed(self, write: Write) -> Write:
        return replace(write, record=_cut_fields(write.record, 65_535)) if isinstance(write, Put) else write


@faulty_adapter(LONG)
class CutsLongTags(_Changes):
    def changed(self, write: Write) -> Write:
        had = write.record.fields.get("tags") if isinstance(write, Put) else None
        if isinstance(write, Put) and isinstance(had, tuple):
            tags = tuple(t[:32_767] for t in had)
            return replace(write, record=replace(write.record, fields={**write.record.fields, "tags": tags}))
        return write


@faulty_adapter(LONG)
class KeepsAThousandTags(_Changes):
    def changed(self, write: Write) -> Write:
        tags = write.record.fields.get("tags") if isinstance(write, Put) else None
        if isinstance(write, Put) and isinstance(tags, tuple):
            return replace(
                write, record=replace(write.record, fields={**write.record.fields, "tags": tags[:1000]})
            )
        return write


@faulty_adapter(LONG)
class CutsLongSteps(_Changes):
    def changed(self, write: Write) -> Write:
        return _on_owed(write, lambda v: v[:65_535] if isinstance(v, str) else v)


# -- what must be refused --------------------------------------------------------------


class _Takes(_Changes):
    """Takes what it should refuse, and makes something of it."""

    forgives: str

    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        return "" if self.forgives in reason else reason

    def changed(self, write: Write) -> Write:
        return write


@faulty_adapter(REFUSED)
class ReplacesHalfCharacters(_Takes):
    forgives = "surrogate"

    def changed(self, write: Write) -> Write:
        return _on_bodies(write, lambda v: v.encode(errors="replace").decode() if isinstance(v, str) else v)


@faulty_adapter(REFUSED)
class KeepsHalfCharactersOfSteps(_Takes):
    forgives = "owed: holds half"


@faulty_adapter(REFUSED)
class WrapsIntegersAround(_Takes):
    forgives = "64 bits"

    def changed(self, write: Write) -> Write:
        return _on_bodies(
            write,
            lambda v: (v + 2**63) % 2**64 - 2**63 if isinstance(v, int) and not isinstance(v, bool) else v,
        )


@faulty_adapter(REFUSED)
class StoresNoNumberAsNull(_Takes):
    forgives = "finite"

    def changed(self, write: Write) -> Write:
        return _on_bodies(write, lambda v: None if isinstance(v, float) and not math.isfinite(v) else v)


@faulty_adapter(REFUSED)
class KeepsInfinityInFields(_Takes):
    forgives = "real number must be finite"


@faulty_adapter(REFUSED)
class NestsWithoutEnd(_Takes):
    forgives = "nests deeper"


@faulty_adapter(REFUSED)
class TakesKeysForText(_Takes):
    forgives = "a key is text"

    def changed(self, write: Write) -> Write:
        if isinstance(write, Put):
            return replace(
                write, record=replace(write.record, body={str(k): v for k, v in write.record.body.items()})
            )
        return write


@faulty_adapter(REFUSED)
class TakesNaiveMomentsForUtc(_Takes):
    forgives = "naive"

    def changed(self, write: Write) -> Write:
        if isinstance(write, Put):
            return replace(
                write, record=replace(write.record, created_at=write.record.created_at.replace(tzinfo=UTC))
            )
        return write


@faulty_adapter(REFUSED)
class KeepsMomentsOutsideTheYears(_Takes):
    forgives = "outside the years"

    def changed(self, write: Write) -> Write:
        def clamped(at: datetime | None) -> datetime | None:
            if at is None:
                return None
            try:
                return at.astimezone(UTC)
            except OverflowError:
                return at.replace(tzinfo=UTC)

        if isinstance(write, Put):
            fields = {n: clamped(v) if isinstance(v, datetime) else v for n, v in write.record.fields.items()}
            moments: Any = {
                n: clamped(getattr(write.record, n))
                for n in ("created_at", "updated_at", "expires_at", "accessed_at", "cached_at")
            }
            return replace(write, record=replace(write.record, fields=fields, **moments))
        return (
            replace(write, discard_at=clamped(write.discard_at))
            if isinstance(write, Delete | Release)
            else write
        )


@faulty_adapter(REFUSED)
class TakesWrongTypesInTexts(_Takes):
    forgives = "takes text, not"


@faulty_adapter(REFUSED)
class TakesVersionsBelowOne(_Takes):
    forgives = "version: "


@faulty_adapter(REFUSED)
class RefusesWithoutANameForIt(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        return "invalid value" if super()._refusal(write) else ""


@faulty_adapter(REFUSED)
class ShowsWhatItRefuses(InMemoryStore):
    """Its driver's message quotes the row."""

    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        return f"{reason}: {write.record.body!r}" if reason and isinstance(write, Put) else reason


@faulty_adapter("test_what_no_store_keeps_is_refused_in_every_kind_of_write")
class ChecksPutsOnly(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        return reason if isinstance(write, Put) else ""


@faulty_adapter("test_what_no_store_keeps_is_refused_in_every_kind_of_write")
class ChecksNoNotes(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        return "" if reason.startswith("note") else reason


# -- what is shared with callers -------------------------------------------------------

OUT = "test_nothing_that_was_handed_out_leads_back_into_the_store"
IN = "test_nothing_that_was_handed_in_leads_into_the_store"


def _thawed(standing: Standing) -> Any:
    if isinstance(standing, Record):
        owed = tuple(PendingStep(o.id, o.step, thaw(o.data)) for o in standing.owed)
        return replace(
            standing,
            body=thaw(standing.body),
            fields=dict(standing.fields),
            texts=dict(standing.texts),
            owed=owed,
        )
    owed = tuple(PendingStep(o.id, o.step, thaw(o.data)) for o in standing.owed)
    return (
        replace(standing, owed=owed, note=thaw(standing.note))
        if isinstance(standing, Tombstone)
        else replace(standing, owed=owed)
    )


class _HandsOut(PerWrite):
    """Keeps plain dicts, and hands them out as they are where it forgot to copy."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        key = getattr(write, "key", None)
        if (
            key is not None
            and outcome.applied
            and (stands := self.state.fetch_stored(write.collection.name, key)) is not None  # type: ignore[union-attr]
        ):
            self.state.place(write.collection.name, key, _thawed(stands))  # type: ignore[union-attr]
        return outcome

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return copy.deepcopy(await super()._get(collection, keys))

    async def _query(self, query: Query) -> Page:
        return copy.deepcopy(await super()._query(query))

    async def _search(self, search: Search) -> list[Hit]:
        return copy.deepcopy(await super()._search(search))

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return copy.deepcopy(await super()._apply(writes, together))


@faulty_adapter(OUT)
class HandsItsOwnOutOfQueries(_HandsOut):
    async def _query(self, query: Query) -> Page:
        return await InMemoryStore._query(self, query)


@faulty_adapter(OUT)
class HandsItsOwnOutOfConflicts(_HandsOut):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return await PerWrite._apply(self, writes, together)


@faulty_adapter(OUT)
class HandsOutItsTombstones(_HandsOut):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        found = await InMemoryStore._get(self, collection, keys)
        return [s if isinstance(s, Tombstone | Mark) else copy.deepcopy(s) for s in found]


class _KeepsWhatItWasHanded(PerWrite):
    kinds: tuple[type, ...]

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, self.kinds) and outcome.applied:
            stands = self.state.fetch_stored(write.collection.name, write.key)  # type: ignore[union-attr]
            if isinstance(write, Put) and isinstance(stands, Record):
                self.state.place(write.collection.name, write.key, replace(stands, body=write.record.body))
            elif isinstance(write, Delete | Release) and isinstance(stands, Mark | Tombstone):
                self.state.place(write.collection.name, write.key, replace(stands, owed=write.owed))
        return outcome


@faulty_adapter(IN)
class KeepsTheStepsItWasHandedForMarks(_KeepsWhatItWasHanded):
    kinds = (Release,)


@faulty_adapter(IN)
class KeepsTheStepsItWasHandedForTombstones(_KeepsWhatItWasHanded):
    kinds = (Delete,)


@faulty_adapter(IN)
class KeepsTheBodiesItWasHanded(_KeepsWhatItWasHanded):
    kinds = (Put,)
