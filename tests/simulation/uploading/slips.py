"""Slips in artifacts that a run must notice, by the name of what goes wrong then."""

from __future__ import annotations

from memory.facade.runtime import access
from memory.orchestrator.conversations import conversation
from memory.orchestrator.conversations.blobs import balances, manifests, reservations, uploads
from memory.orchestrator.erasure import erasure
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
        "    await self._balances.change(life.tenant, add_uploads)\n",
        "    self._refuse_beyond(life.tenant, (await self._balances.of(life.tenant)).total, size)\n"
        "    await self._balances.change(life.tenant, lambda balance: balance.with_entry(upload, Entry(size, micros(now)), size))\n",
    ),
    "a-stream-grows-beyond-the-quota": Slip(
        reservations,
        "Reservations.grow",
        "self._refuse_beyond(tenant, balance.total, wanted - entry.counted)",
        "pass",
    ),
    "room-is-made-twice-where-an-answer-was-lost": Slip(
        reservations, "Reservations.reserve", "if upload in balance.under_way:", "if False:"
    ),
    "two-change-the-balance-over-each-other": Slip(
        balances, "Balances._put", "AtVersion(stands) if stands else Absent()", f"{_WRITES}.Always()"
    ),
    "room-is-returned-and-counted-still": Slip(
        reservations,
        "Reservations._remove_uploads",
        "balance.without(upload, 0)",
        "balance.without(upload, balance.under_way[upload].counted if upload in balance.under_way else 0)",
    ),
    "the-chunks-of-what-is-replaced-stay": Slip(
        manifests, "Manifests._manifest", "(*owed, _to_drop(before))", "owed"
    ),
    "the-chunks-of-what-is-replaced-go-too-soon": Slip(
        manifests,
        "Manifests.put",
        _NAMED,
        "    if isinstance(stands, Record):\n        await self._drop_noted(OutboxRecord(MANIFESTS, self._store, stands), _to_drop(stands))\n"
        + _NAMED,
    ),
    "what-is-dropped-keeps-its-room": Slip(
        manifests,
        "Manifests._drop_noted",
        'await self._reservations.give_back(tenant, said["upload"], stood=True)',
        "pass",
    ),
    "what-is-deleted-leaves-its-chunks": Slip(
        manifests, "Manifests._deletion", ", _to_drop(manifest))", ",)"
    ),
    "a-lease-is-not-renewed": Slip(
        manifests,
        "Manifests._lay_portion",
        "self._placement.settings.mark_life / 4",
        "self._placement.settings.mark_life * 4",
    ),
    "an-upload-is-given-up-that-goes-on": Slip(
        manifests,
        "Manifests._look_noted",
        "> self._placement.settings.mark_life\n",
        "> self._placement.settings.mark_life * 0\n",
    ),
    "what-a-dead-writer-left-stays": Slip(
        manifests, "Manifests._look_noted", "        await self._drop_given_up(reservation)\n", ""
    ),
    "what-is-given-up-leaves-its-chunks": Slip(
        reservations,
        "Reservations.give_up",
        "reservation.version, owed)",
        "reservation.version)",
    ),
    "what-was-given-up-is-put-late": Slip(
        manifests, "Manifests._look_noted", "and await self._shut_out(key, manifest)", ""
    ),
    "a-reservation-keeps-the-artifact-that-it-was-to-be": Slip(
        manifests, "Manifests._name", "renew(upload.reservation, wanted)", "renew(upload.reservation)"
    ),
    "a-replacement-takes-a-new-id": Slip(
        manifests, "Manifests._id_over", "isinstance(stands, Record)", "False"
    ),
    "a-replacement-is-put-over-what-was-not-seen": Slip(
        manifests,
        "Manifests._at_its_place",
        "AtVersion(version) if version else Absent()",
        f"{_WRITES}.Always()",
    ),
    "a-deletion-takes-what-it-did-not-see": Slip(
        manifests, "Manifests._deletion", "AtVersion(manifest.version)", f"{_WRITES}.Always()"
    ),
    "an-unknown-outcome-is-taken-for-done": Slip(
        manifests,
        "Manifests._at_its_place",
        '    except StoreUnavailable:\n        return await self._placement.write_one("artifacts.name", self._store, put)\n',
        f"    except StoreUnavailable:\n        return {_WRITES}.Outcome({_WRITES}.Status.APPLIED)\n",
    ),
    "chunks-are-told-by-their-number-alone": Slip(
        manifests, "_chunk_id", '"chunk", upload, str(number)', '"chunk", str(number)'
    ),
    "the-digest-is-not-checked": Slip(
        manifests, "Manifests.stream", 'digest.hexdigest() != manifest.body["sha256"] or', ""
    ),
    "who-reads-what-is-replaced-gets-a-part": Slip(
        manifests,
        "Manifests._portion",
        "        raise await self._why_not_whole(manifest)\n",
        "        return portion\n",
    ),
    "who-reads-what-is-replaced-is-told-of-damage": Slip(
        manifests, "Manifests._why_not_whole", 'now.fields["upload"] != manifest.fields["upload"]', "False"
    ),
    "the-room-of-a-deleted-session-stays-taken": Slip(
        manifests, "Manifests._gone_with", "kind == CONVERSATION", "kind == ''"
    ),
    "the-artifacts-of-a-deleted-session-stay": Slip(
        erasure,
        "Erasure._erase_in",
        "        collection = kind.collection\n",
        "        collection = kind.collection\n        if collection.name in ('artifacts', 'manifests'):\n            continue\n",
    ),
    "entries-point-to-what-was-deleted": Slip(
        manifests,
        "Manifests._clear_noted",
        'await self.on_gone(pending.owner.key.tenant, owed.data["artifact"])',
        "pass",
    ),
    "entries-point-to-what-went-with-its-session": Slip(
        manifests,
        "Manifests._gone_with",
        'await self.on_gone(partition.tenant, str(reservation.fields["artifact_id"]))',
        "pass",
    ),
    "an-entry-is-written-that-points-to-nothing": Slip(
        access, "Access.refuse_unknown_artifacts", "if one not in known:", "if False:"
    ),
    **{
        f"{name} (messages)": slip
        for name, slip in {
            "room-is-reserved-after-storing": Slip(
                uploads,
                "Uploads.lay",
                "        await self._reservations.reserve_parts(life, takes, refuses=refuses)\n",
                "        for portion in self._portions(life, [chunk for _, chunks in fresh for chunk in chunks.items()], now):\n"
                "            await self._put(portion)\n"
                "        await self._reservations.reserve_parts(life, takes, refuses=refuses)\n",
            ),
            "two-each-see-room": Slip(
                reservations,
                "Reservations.reserve_parts",
                "        self._refuse_beyond(life.tenant, balance.total, sum(size for size, _ in uploads.values()))\n",
                "        pass\n",
            ),
            "room-is-returned-twice": Slip(
                reservations,
                "Reservations.leave",
                "balance.without(upload, takes)",
                "replace(balance.without(upload, takes), total=max(balance.total - 2 * (bytes_of(there) - takes), 0))",
            ),
            "what-is-dropped-keeps-its-room": Slip(
                uploads, "Uploads._drop_noted", "await self._reservations.leave(tenant, upload, left)", "pass"
            ),
            "what-is-cut-is-returned-whole": Slip(
                uploads,
                "Uploads._drop_noted",
                "await self._reservations.leave(tenant, upload, left)",
                "await self._reservations.leave(tenant, upload, 0)",
            ),
            "a-fork-does-not-count": Slip(
                conversation,
                "Conversation.begin",
                "        self._note_writes(*await self._log.append(",
                "        room = self._log._uploads._reservations\n"
                "        class Uncounted:\n"
                "            def __getattr__(self, name):\n"
                "                return getattr(room, name)\n"
                "            async def reserve_parts(self, *_, **__):\n"
                "                pass\n"
                "            async def hold_parts(self, *_):\n"
                "                return True\n"
                "        self._log._uploads._reservations = Uncounted()\n"
                "        self._note_writes(*await self._log.append(",
            ),
            "what-a-dead-writer-left-stays": Slip(
                uploads, "Uploads._look_noted", "await self._give_up(reservation)", "pass"
            ),
            "what-a-sweep-finds-named-is-given-up": Slip(
                uploads,
                "Uploads._look_noted",
                "if await self._is_named(pending.store, reservation):",
                "if False:",
            ),
        }.items()
    },
}
