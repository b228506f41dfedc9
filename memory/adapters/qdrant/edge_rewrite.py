"""Writes the points of one shard into a new one and ends: what was deleted, which Edge
keeps in its files for good, is not among them.

Run in a process of its own, with the shard, the new one's folder and its indexes as
JSON, and how many points it takes over at once.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import qdrant_edge as edge

from memory.adapters.qdrant.edge import make_index, make_vector, new_shard
from memory.adapters.qdrant.edge_folder import dimensions_of
from memory.adapters.qdrant.engine import Index


def rewrite(shard: Path, new: Path, indexes: list[Index], at_once: int) -> None:
    """A point that cannot be read ends it, and leaves everything as it was: what is
    damaged is looked after first.
    """
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    old, made = edge.EdgeShard.load(str(shard)), new_shard(str(new))
    for dimensions in sorted(dimensions_of(shard)):
        make_vector(made, dimensions)
    for index in indexes:
        make_index(made, index)
    after = None
    while True:
        points, after = old.scroll(
            edge.ScrollRequest(offset=after, limit=at_once, with_payload=True, with_vector=True)
        )
        if points:
            made.update(
                edge.UpdateOperation.upsert_points(
                    [edge.Point(p.id, p.vector or {}, p.payload or {}) for p in points]
                )
            )
        if after is None:
            break
    if old.info().indexed_vectors_count:
        made.optimize()
    made.flush()
    made.close()
    old.close()


if __name__ == "__main__":
    os.umask(0o077)
    rewrite(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        [Index(path, kind) for path, kind in json.loads(sys.argv[3])],
        int(sys.argv[4]),
    )
