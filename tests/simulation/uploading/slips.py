"""Slips in artifacts that a run must notice, by the name of what goes wrong then."""

from __future__ import annotations

from memory.facade import access
from memory.orchestrator import erasure
from memory.orchestrator.conversations import manifests, reservations
from tests.support.slips import Slip

_WRITES = "__import__('memory.ports.writes').ports.writes"
_NAMED = "    try:\n        manifest = await self._name(upload, path, media_type, stands)\n"

SLIPS: dict[str, Slip] = {
    "the-manifest-comes-before-its-chunks": Slip(
        manifests,
        "Manifests.put",
        "        await self._lay(upload, data)\n",
        "        whole = b''.join([piece async for piece in data])\n"
        "        ahead = _Upload(upload.life, upload.key, upload.name, upload.reservation, None, len(whole), -(-len(whole) // CHUNK_BYTES))\n"
        "        ahead.hash.update(whole)\n"
        "        await self._name(ahead, path, media_type, stands)\n\n"
        "        async def again():\n            yield whole\n\n"
        "        await self._lay(upload, again())\n",
    ),
    "two-uploads-each-see-room": Slip(
        reservations,
        "Reservations.reserve",
        "    await self._change(life.tenant, named)\n",
        "    self._refuse_beyond(life.tenant, (await self._balance(life.tenant)).total, size)\n"
        "    await self._change(life.tenant, lambda balance: balance.with_entry(upload, Entry(size, micros(now)), size))\n",
    ),
    "a-stream-grows-beyond-the-quota": Slip(
        reservations, "Reservations.grow", "self._refuse_beyond(tenant, balance.total, wanted - entry.counted)", "pass"
    ),
    "room-is-made-twice-where-an-answer-was-lost": Slip(reservations, "Reservations.reserve", "if upload in balance.under_way:", "if False:"),
    "two-change-the-balance-over-each-other": Slip(
        reservations, "Reservations._put_balance", "AtVersion(stands) if stands else Absent()", f"{_WRITES}.Always()"
    ),
    "room-is-returned-and-counted-still": Slip(
        reservations,
        "Reservations.give_back",
        "                await self._change(tenant, lambda balance: balance.without(upload, 0))\n                return Tombstone",
        "                await self._change(tenant, lambda balance: balance.without(upload, entry.counted))\n                return Tombstone",
    ),
    "the-chunks-of-what-is-replaced-stay": Slip(manifests, "Manifests._manifest", "(*owed, _to_drop(before))", "owed"),
    "the-chunks-of-what-is-replaced-go-too-soon": Slip(
        manifests,
        "Manifests.put",
        _NAMED,
        "    if isinstance(stands, Record):\n        await self._drop_noted(Pending(MANIFESTS, self._store, stands), _to_drop(stands))\n" + _NAMED,
    ),
    "what-is-dropped-keeps-its-room": Slip(manifests, "Manifests._drop_noted", 'await self._reservations.give_back(tenant, said["upload"])', "pass"),
    "what-is-deleted-leaves-its-chunks": Slip(manifests, "Manifests._deletion", ", _to_drop(manifest))", ",)"),
    "a-lease-is-not-renewed": Slip(
        manifests, "Manifests._lay_portion", "self._placement.settings.mark_life / 4", "self._placement.settings.mark_life * 4"
    ),
    "an-upload-is-given-up-that-goes-on": Slip(
        manifests, "Manifests._look_noted", "self._placement.settings.mark_life and not", "self._placement.settings.mark_life * 0 and not"
    ),
    "what-a-dead-writer-left-stays": Slip(manifests, "Manifests._look_noted", "        await self._drop_given_up(reservation)\n", ""),
    "what-is-given-up-leaves-its-chunks": Slip(
        manifests,
        "Manifests._drop_given_up",
        "await self._reservations.give_back(tenant, name, reservation.version, owed)",
        "await self._reservations.give_back(tenant, name, reservation.version)",
    ),
    "what-a-sweep-holds-counts-as-given-up": Slip(
        reservations, "_is_as", '(held_for is not None and there.fields.get("artifact_id") == held_for)', "False"
    ),
    "what-was-given-up-is-acknowledged": Slip(manifests, "Manifests._hold", "raise self._too_slow() from None", "pass"),
    "a-replacement-takes-a-new-id": Slip(manifests, "Manifests._manifest", 'given if before is None else before.fields["artifact_id"]', "given"),
    "a-replacement-is-put-over-what-was-not-seen": Slip(
        manifests, "Manifests._at_its_place", "AtVersion(version) if version else Absent()", f"{_WRITES}.Always()"
    ),
    "a-deletion-takes-what-it-did-not-see": Slip(manifests, "Manifests._deletion", "AtVersion(manifest.version)", f"{_WRITES}.Always()"),
    "an-unknown-outcome-is-taken-for-done": Slip(
        manifests,
        "Manifests._at_its_place",
        '    except StoreUnavailable:\n        return await self._placement.write_one("artifacts.name", self._store, put)\n',
        f"    except StoreUnavailable:\n        return {_WRITES}.Outcome({_WRITES}.Status.APPLIED)\n",
    ),
    "chunks-are-told-by-their-number-alone": Slip(manifests, "_chunk_id", '"chunk", upload, str(number)', '"chunk", str(number)'),
    "the-digest-is-not-checked": Slip(manifests, "Manifests.stream", 'digest.hexdigest() != manifest.body["sha256"] or', ""),
    "who-reads-what-is-replaced-gets-a-part": Slip(
        manifests, "Manifests._portion", "        raise await self._why_not_whole(manifest)\n", "        return portion\n"
    ),
    "who-reads-what-is-replaced-is-told-of-damage": Slip(
        manifests, "Manifests._why_not_whole", 'now.fields["upload"] != manifest.fields["upload"]', "False"
    ),
    "the-room-of-a-deleted-session-stays-taken": Slip(manifests, "Manifests._gone_with", "kind == CONVERSATION", "kind == ''"),
    "the-artifacts-of-a-deleted-session-stay": Slip(
        erasure,
        "Erasure._erase_in",
        "        collection = kind.collection\n",
        "        collection = kind.collection\n        if collection.name in ('artifacts', 'manifests'):\n            continue\n",
    ),
    "entries-point-to-what-was-deleted": Slip(
        manifests, "Manifests._clear_noted", 'await self.on_gone(pending.owner.key.tenant, owed.data["artifact"])', "pass"
    ),
    "entries-point-to-what-went-with-its-session": Slip(
        manifests, "Manifests._gone_with", 'await self.on_gone(partition.tenant, str(reservation.fields["artifact_id"]))', "pass"
    ),
    "an-entry-is-written-that-points-to-nothing": Slip(access, "Access.refuse_unknown_artifacts", "if one not in known:", "if False:"),
}
