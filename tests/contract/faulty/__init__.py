"""Adapters with one fault each, and the test of the contract that must catch it."""
