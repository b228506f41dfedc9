from memory.ports.contract.fixtures import harness, store

__all__ = ["harness", "store"]
