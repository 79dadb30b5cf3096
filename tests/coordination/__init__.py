"""The coordination scripts against the pure protocol, on a real Redis."""
