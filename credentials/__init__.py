"""Credential intents and the secrets they stand for in Vault. Knows nothing of jobs or workers."""
