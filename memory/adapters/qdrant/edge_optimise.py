"""Optimises one shard and ends: run in a process of its own, because Edge holds the
interpreter's lock for all of it.
"""

from __future__ import annotations

import sys

import qdrant_edge as edge

if __name__ == "__main__":
    shard = edge.EdgeShard.load(sys.argv[1])
    shard.optimize()
    shard.close()
