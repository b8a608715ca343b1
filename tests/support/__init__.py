"""Helpers of the integration tests: the embedded stack, an HTTP client, Redis nodes, PostgreSQL and fault injection."""
