"""Measurements, with the raw engine beside in the same run: `python -m bench`."""
