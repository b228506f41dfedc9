"""Renames between unreleased versions: `python -m tools.codemods PATH…` rewrites Python
files and documents.

The table is `names.py`. A name is renamed only where it means the one of this library:
imports are followed. In documents and docstrings it is renamed inside code only.
The package goes with the release after 0.1.
"""
