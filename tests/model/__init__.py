"""The model test: random everyday use of the facade against a model in plain Python.
`python -m tests.model --help`.
"""
