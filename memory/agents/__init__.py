"""Memory for agents that keep no code of their own for it.

`manager` injects what is known before a model answers and learns from what was said.
`providers` keep an agent's messages for frameworks that ask for a message store.
Both use the public facade only.
"""
