"""Vectors: the embedder, passages, and indexes of partitions in the process.

What makes vectors and keeps them. What compares them with a question is `retrieval`.
It imports `storage` and the packages below it.
"""

__all__ = [
    "embeddings",
    "partition_indexes",
    "passages",
]
