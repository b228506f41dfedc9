"""Optimizes one shard and exits.

It runs in a separate process, because Edge holds the GIL all the time.
"""

from __future__ import annotations

import sys

import qdrant_edge as edge

if __name__ == "__main__":
    shard = edge.EdgeShard.load(sys.argv[1])
    shard.optimize()
    shard.close()
