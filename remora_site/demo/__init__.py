"""`make demo`: a real transfer on a real fleet, the worker killed half-way, and the account of it.

`stage.py` is the outside: a home of its own, servers, programs, and everything stopped at the end.
`play.py` is the inside, in a process that has the stores' addresses: it submits, watches, kills, and
checks. `source.py` makes what is transferred and compares it with the result; `account.py` says what was
sent twice.
"""
