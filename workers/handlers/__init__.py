"""Kinds of job: the registry. `api.py` says what a handler is; `failures.py` what its failures mean.

To add a kind: write a class that satisfies `api.Handler`, and add one line to `_register_built_in`.
"""

from __future__ import annotations

from difflib import get_close_matches

from jobs.errors import SpecInvalid
from workers.handlers.api import Handler

_HANDLERS: dict[str, Handler] = {}


def register(handler: Handler) -> None:
    """Make a kind known, here and to submission. Another handler under a known kind is a defect."""
    # Imported here: models may be loaded only once Django is ready, and handlers are read before that too.
    from jobs import submission

    known = _HANDLERS.get(handler.kind)
    if known is not None and type(known) is not type(handler):
        raise ValueError(f"kind {handler.kind!r} is already handled by {type(known).__qualname__}")
    _HANDLERS[handler.kind] = handler
    submission.register_kind(handler.kind, handler.validate)


def kinds() -> tuple[str, ...]:
    _register_built_in()
    return tuple(sorted(_HANDLERS))


def handler_for(kind: str) -> Handler:
    """The handler of that kind, or SpecInvalid naming the field, what is known, and the nearest spelling."""
    known = kinds()
    if kind in _HANDLERS:
        return _HANDLERS[kind]
    near = get_close_matches(kind, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise SpecInvalid("kind", f"unknown kind {kind[:80]!r}; known: {', '.join(known)}.{hint}")


def _register_built_in() -> None:
    # Imported here: a handler module imports this package's api, and a process that only validates
    # one kind need not load what the others depend on before it asks.
    from django.conf import settings

    from workers.handlers.transfer import TransferHandler

    if TransferHandler.kind not in _HANDLERS:
        register(TransferHandler())
    if settings.REMORA_PROBE:
        from workers.handlers.probe import ProbeHandler

        if ProbeHandler.kind not in _HANDLERS:
            register(ProbeHandler())
