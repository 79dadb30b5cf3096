"""Coordination and execution: everything here can be rebuilt from the durable store."""
