"""Serve a memory over HTTP: a thin layer over the facade.

It parses a request, authorises its caller, calls the facade through a restricted view,
and renders the answer. It holds no rule of the memory.
"""
