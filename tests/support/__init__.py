"""What the integration tests stand on: the embedded stack, an HTTP client, the nodes and the database behind it."""
