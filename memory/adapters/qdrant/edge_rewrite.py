"""Copies the points of one shard to a new one and exits.

Deleted data, which Edge keeps in its files forever, is not copied. It runs in a
separate process. Arguments are the shard, the new folder, the indexes as JSON, and the
number of points per step.
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
    """Copy all points.

    An unreadable point stops the copy and leaves everything unchanged, because damage
    is repaired first.
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
