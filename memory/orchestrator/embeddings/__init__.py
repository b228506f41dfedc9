"""Vectors: the embedder, passages, and indexes of partitions in the process.

The code here makes vectors and keeps them. `retrieval` compares them with a query. It
imports `storage` and the packages below it.
"""

__all__ = [
    "embeddings",
    "partition_indexes",
    "passages",
]
