"""Hints that leave the durable store after commit. Whoever misses one loses nothing: the sweeps find the same
work.
"""

from django.dispatch import Signal

job_accepted = Signal()
"""Sent after the transaction that accepted new jobs; `job_ids` is a list."""
