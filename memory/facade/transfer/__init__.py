"""Files that go out and come in: exports, imports, artifacts and backups.

A file is JSON Lines; `lines` says what each line holds.
"""
