"""Renames between unreleased versions: `python -m tools.codemods PATH…` rewrites Python
files and documents.

The table is `names.py`. Classes and functions are followed from their imports. Methods
and arguments are told by their names, in files that use the library. In documents and
docstrings, names are renamed inside code only.

The package goes with the release after 0.1.
"""
