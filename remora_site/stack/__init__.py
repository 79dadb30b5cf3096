"""The embedded stack: real PostgreSQL, Redis and OpenBao for development and tests."""
