"""Adapters of agent frameworks over `memory`, judged by the frameworks' own tests.

`python -m tools.fitness` runs them, each in an environment of its own.
"""
