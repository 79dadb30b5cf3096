"""The attempt host: the process in which handler code runs, and the line between it and its supervisor.

The supervisor (a pool child of the Celery worker) keeps the lease and settles; the host only runs the
handler. So nothing that a handler does (hold the interpreter, leak, crash, be killed) can keep the
supervisor from its duties. `lines.py` is the line, `process.py` the supervisor's end, `attempt.py` and
`__main__.py` the host itself.
"""
