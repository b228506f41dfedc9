"""Wrappers for any store: timeouts, retries, a circuit breaker, telemetry.

Each wrapper is a store itself and passes the contract suite.
"""
