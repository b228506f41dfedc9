"""Mutations in what stores artifacts, which a drawn history must show
(`test_manifests.py`).
"""

from __future__ import annotations

from memory.orchestrator.conversations.blobs import manifests, reservations
from tests.support.mutations import Mutation

MUTATIONS = {
    "the manifest is put before the chunks": Mutation(
        manifests,
        "Manifests._put_chunks",
        "    while puts:\n",
        "    (stands,) = await self._store.get(MANIFESTS, [upload.key])\n    digest ="
        " hashlib.sha256(b''.join(portion)).hexdigest()\n    ahead = _Upload(upload.life, upload.key,"
        " upload.name, upload.reservation, None, None, sum(map(len, portion)), len(portion))\n    early ="
        " self._manifest(ahead, 'a', 'text/plain', digest, stands)\n    await self._at_its_place(early,"
        " stands)\n    while puts:\n",
    ),
    "two uploads may each see room": Mutation(
        reservations,
        "Reservations.reserve",
        "    await self._balances.change(life.tenant, add_uploads)\n",
        "    self._refuse_beyond(life.tenant, (await self._balances.of(life.tenant)).total, size)\n    await"
        " self._balances.change(life.tenant, lambda balance: balance.with_entry(upload, BalanceEntry(size,"
        " micros(now)), size))\n",
    ),
    "the old chunks are erased before the manifest is replaced": Mutation(
        manifests,
        "Manifests.put",
        "    try:\n        manifest = await self._name(upload, path, media_type, stands)\n",
        "    if isinstance(stands, Record):\n"
        "        await self._drop_noted(OutboxRecord(MANIFESTS, self._store, stands), _to_drop(stands))\n"
        "    try:\n        manifest = await self._name(upload, path, media_type, stands)\n",
    ),
    "orphans are never swept": Mutation(
        manifests, "Manifests._look_noted", "        await self._drop_given_up(reservation)\n", ""
    ),
    "the digest is never checked": Mutation(
        manifests, "Manifests.stream", 'digest.hexdigest() != manifest.body["sha256"] or', ""
    ),
    "the room of what went with a session is not returned": Mutation(
        manifests, "Manifests._gone_with", "kind == CONVERSATION", "kind == ''"
    ),
}
