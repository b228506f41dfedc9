"""The code that the dialects reached over a network share."""
