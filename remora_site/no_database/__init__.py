"""Stands in for the database while none is known, so that commands which need none still run."""
