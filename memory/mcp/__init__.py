"""Serve a memory to agents over MCP, the Model Context Protocol.

A thin layer over the facade: it parses the arguments of a tool, calls the facade, and
renders the answer for a model. It holds no rule of the memory.
"""
