"""What may stand around any store: limits of time, retries, a circuit breaker,
telemetry. Each is a store again, and the contract runs on it.
"""
