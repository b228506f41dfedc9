"""Retrieval of entries: who is asked what (`pool`), what the past held (`past`), and
the best of it as their homes say now (`searching`).
"""
