"""Mutations in artifacts that a run must notice, by the name of what goes wrong then."""

from __future__ import annotations

from memory.facade.runtime import access
from memory.orchestrator.conversations import conversation
from memory.orchestrator.conversations.blobs import balances, manifests, reservations, uploads
from memory.orchestrator.erasure import erasure
from tests.support.mutations import Mutation

_WRITES = "__import__('memory.ports.writes').ports.writes"
_NAMED = "    try:\n        manifest = await self._name(upload, path, media_type, stands)\n"

MUTATIONS: dict[str, Mutation] = {
    "the-manifest-comes-before-its-chunks": Mutation(
        manifests,
        "Manifests.put",
        "        await self._lay(upload, data)\n",
        "        whole = b''.join([piece async for piece in data])\n        ahead = _Upload(upload.life,"
        " upload.key, upload.name, upload.reservation, None, len(whole), -(-len(whole) // CHUNK_BYTES))\n    "
        "    ahead.hash.update(whole)\n        await self._name(ahead, path, media_type, stands)\n\n       "
        " async def again():\n            yield whole\n\n        await self._lay(upload, again())\n",
    ),
    "two-uploads-each-see-room": Mutation(
        reservations,
        "Reservations.reserve",
        "    await self._balances.change(life.tenant, add_uploads)\n",
        "    self._refuse_beyond(life.tenant, (await self._balances.of(life.tenant)).total, size)\n    await"
        " self._balances.change(life.tenant, lambda balance: balance.with_entry(upload, BalanceEntry(size,"
        " micros(now)), size))\n",
    ),
    "a-stream-grows-beyond-the-quota": Mutation(
        reservations,
        "Reservations.grow",
        "self._refuse_beyond(tenant, balance.total, wanted - entry.counted)",
        "pass",
    ),
    "room-is-made-twice-where-an-answer-was-lost": Mutation(
        reservations, "Reservations.reserve", "if upload in balance.under_way:", "if False:"
    ),
    "two-change-the-balance-over-each-other": Mutation(
        balances, "Balances._put", "AtVersion(stands) if stands else Absent()", f"{_WRITES}.Always()"
    ),
    "room-is-returned-and-counted-still": Mutation(
        reservations,
        "Reservations._remove_uploads",
        "balance.without(upload, 0)",
        "balance.without(upload, balance.under_way[upload].counted if upload in balance.under_way else 0)",
    ),
    "a-recount-is-taken-for-the-own-put": Mutation(
        reservations,
        "_is_as",
        "        and (there.owed, dict(there.fields)) == (reservation.owed, dict(reservation.fields))\n",
        "",
    ),
    "the-chunks-of-what-is-replaced-stay": Mutation(
        manifests, "Manifests._manifest", "(*owed, _to_drop(before))", "owed"
    ),
    "the-chunks-of-what-is-replaced-go-too-soon": Mutation(
        manifests,
        "Manifests.put",
        _NAMED,
        "    if isinstance(stands, Record):\n        await self._drop_noted(OutboxRecord(MANIFESTS,"
        " self._store, stands), _to_drop(stands))\n" + _NAMED,
    ),
    "what-is-dropped-keeps-its-room": Mutation(
        manifests,
        "Manifests._drop_noted",
        'await self._reservations.give_back(tenant, said["upload"], stood=True)',
        "pass",
    ),
    "what-is-deleted-leaves-its-chunks": Mutation(
        manifests, "Manifests._deletion", ", _to_drop(manifest))", ",)"
    ),
    "a-lease-is-not-renewed": Mutation(
        manifests,
        "Manifests._lay_portion",
        "self._placement.settings.mark_life / 4",
        "self._placement.settings.mark_life * 4",
    ),
    "an-upload-is-given-up-that-goes-on": Mutation(
        manifests,
        "Manifests._look_noted",
        "> self._placement.settings.mark_life\n",
        "> self._placement.settings.mark_life * 0\n",
    ),
    "what-a-dead-writer-left-stays": Mutation(
        manifests, "Manifests._look_noted", "        await self._drop_given_up(reservation)\n", ""
    ),
    "what-is-given-up-leaves-its-chunks": Mutation(
        reservations,
        "Reservations.give_up",
        "reservation.version, owed)",
        "reservation.version)",
    ),
    "what-was-given-up-is-put-late": Mutation(
        manifests, "Manifests._look_noted", "and await self._shut_out(key, manifest)", ""
    ),
    "a-reservation-keeps-the-artifact-that-it-was-to-be": Mutation(
        manifests, "Manifests._name", "renew(upload.reservation, wanted)", "renew(upload.reservation)"
    ),
    "a-replacement-takes-a-new-id": Mutation(
        manifests, "Manifests._id_over", "isinstance(stands, Record)", "False"
    ),
    "a-replacement-is-put-over-what-was-not-seen": Mutation(
        manifests,
        "Manifests._at_its_place",
        "AtVersion(version) if version else Absent()",
        f"{_WRITES}.Always()",
    ),
    "a-deletion-takes-what-it-did-not-see": Mutation(
        manifests, "Manifests._deletion", "AtVersion(manifest.version)", f"{_WRITES}.Always()"
    ),
    "an-unknown-outcome-is-taken-for-done": Mutation(
        manifests,
        "Manifests._at_its_place",
        '    except StoreUnavailable:\n        return await self._placement.write_one("artifacts.name",'
        " self._store, put)\n",
        f"    except StoreUnavailable:\n        return {_WRITES}.Outcome({_WRITES}.Status.APPLIED)\n",
    ),
    "chunks-are-told-by-their-number-alone": Mutation(
        manifests, "_chunk_id", '"chunk", upload, str(number)', '"chunk", str(number)'
    ),
    "the-digest-is-not-checked": Mutation(
        manifests, "Manifests.stream", 'digest.hexdigest() != manifest.body["sha256"] or', ""
    ),
    "who-reads-what-is-replaced-gets-a-part": Mutation(
        manifests,
        "Manifests._portion",
        "        raise await self._why_not_whole(manifest)\n",
        "        return portion\n",
    ),
    "who-reads-what-is-replaced-is-told-of-damage": Mutation(
        manifests, "Manifests._why_not_whole", 'now.fields["upload"] != manifest.fields["upload"]', "False"
    ),
    "the-room-of-a-deleted-session-stays-taken": Mutation(
        manifests, "Manifests._gone_with", "kind == CONVERSATION", "kind == ''"
    ),
    "the-artifacts-of-a-deleted-session-stay": Mutation(
        erasure,
        "Erasure._erase_in",
        "        collection = kind.collection\n",
        "        collection = kind.collection\n        if collection.name in ('artifacts', 'manifests'):\n   "
        "         continue\n",
    ),
    "entries-point-to-what-was-deleted": Mutation(
        manifests,
        "Manifests._clear_noted",
        'await self._on_gone(pending.owner.key.tenant, owed.data["artifact"])',
        "pass",
    ),
    "entries-point-to-what-went-with-its-session": Mutation(
        manifests,
        "Manifests._gone_with",
        'await self._on_gone(partition.tenant, str(reservation.fields["artifact_id"]))',
        "pass",
    ),
    "an-entry-is-written-that-points-to-nothing": Mutation(
        access, "Access.refuse_unknown_artifacts", "if one not in known:", "if False:"
    ),
    **{
        f"{name} (messages)": mutation
        for name, mutation in {
            "room-is-reserved-after-storing": Mutation(
                uploads,
                "Uploads.lay",
                "        await self._reservations.reserve_parts(life, takes, refuses=refuses)\n",
                "        for portion in self._portions(life, [chunk for _, chunks in fresh for chunk in"
                " chunks.items()], now):\n            await self._put(portion)\n        await"
                " self._reservations.reserve_parts(life, takes, refuses=refuses)\n",
            ),
            "two-each-see-room": Mutation(
                reservations,
                "Reservations.reserve_parts",
                "        self._refuse_beyond(life.tenant, balance.total, sum(size for size, _ in"
                " uploads.values()))\n",
                "        pass\n",
            ),
            "room-is-returned-twice": Mutation(
                reservations,
                "Reservations.leave",
                "balance.without(upload, takes)",
                "replace(balance.without(upload, takes), total=max(balance.total - 2 * (bytes_of(there) -"
                " takes), 0))",
            ),
            "what-is-dropped-keeps-its-room": Mutation(
                uploads, "Uploads._drop_noted", "await self._reservations.leave(tenant, upload, left)", "pass"
            ),
            "what-is-cut-is-returned-whole": Mutation(
                uploads,
                "Uploads._drop_noted",
                "await self._reservations.leave(tenant, upload, left)",
                "await self._reservations.leave(tenant, upload, 0)",
            ),
            "a-fork-does-not-count": Mutation(
                conversation,
                "Conversation.begin",
                "            self._note_writes(*await self._log.append(",
                "            room = self._log._uploads._reservations\n"
                "            class Uncounted:\n"
                "                def __getattr__(self, name):\n"
                "                    return getattr(room, name)\n"
                "                async def reserve_parts(self, *_, **__):\n"
                "                    pass\n"
                "                async def hold_parts(self, *_):\n"
                "                    return True\n"
                "            self._log._uploads._reservations = Uncounted()\n"
                "            self._note_writes(*await self._log.append(",
            ),
            "what-a-dead-writer-left-stays": Mutation(
                uploads, "Uploads._look_noted", "await self._give_up(reservation)", "pass"
            ),
            "what-a-sweep-finds-named-is-given-up": Mutation(
                uploads,
                "Uploads._look_noted",
                "if await self._is_named(store, reservation):",
                "if False:",
            ),
        }.items()
    },
}
