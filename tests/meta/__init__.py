"""Tests of the engineering: what is shipped, what is written down, what the checks
catch.
"""
