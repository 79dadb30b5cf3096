"""What a submission may hold: fields in range, a spec in normal form; or an error that names the field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from django.conf import settings

from jobs import strict_json
from jobs.errors import SpecInvalid, SubmissionInvalid
from jobs.models import KEY_CHARS_MAX, PRIORITY_RANGE, WORD_CHARS_MAX

ATTEMPTS_MAX: Final = 100_000
BACKOFF_S_MAX: Final = 86_400.0
_WORD: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{WORD_CHARS_MAX - 1}}}")

Validate: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The spec in its normal form, or SpecInvalid naming the field."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job that is asked for. What is None takes the deployment's setting."""

    kind: str
    spec: Mapping[str, Any]
    key: str | None = None
    queue: str = "default"
    priority: int = 0
    label: str = ""
    concurrency_key: str = ""
    max_attempts: int | None = None
    max_failures: int | None = None
    max_losses: int | None = None
    backoff_base_s: float | None = None
    backoff_cap_s: float | None = None


_validators: dict[str, Validate] = {}


def register_kind(kind: str, validate: Validate) -> None:
    """Make a kind known. The handlers' registry calls it for each; this app knows no handler."""
    _validators[kind] = validate


def known_kinds() -> list[str]:
    """The kinds that may be submitted, sorted."""
    return sorted(_validators)


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that may be accepted: every field in range, the spec in its normal form."""

    key: str | None
    request_digest: str
    columns: Mapping[str, Any]


def checked(request: JobRequest) -> Checked:
    """The request in its normal form, or SpecInvalid / SubmissionInvalid naming the field."""
    columns = _checked_fields(request)
    key = None if request.key is None else _text(request.key, "key", KEY_CHARS_MAX, empty=False)
    spec = strict_json.check(_normal_spec(request), "spec", settings.REMORA_SPEC_BYTES_MAX)
    policy = _policy(request)
    asked = {name: value for name, value in policy.items() if getattr(request, name) is not None}
    return Checked(
        key=key,
        # What the deployment's settings gave is no part of the body: a setting may change between two tries.
        request_digest=strict_json.digest({**columns, "spec": spec, **asked}),
        columns={**columns, "spec": spec, "spec_digest": strict_json.digest(spec), **policy},
    )


def _normal_spec(request: JobRequest) -> Mapping[str, Any]:
    validate = _validators.get(request.kind)
    if validate is None:
        known = ", ".join(known_kinds()) or "none"
        raise SubmissionInvalid("kind", f"{request.kind!a} is not known; known kinds: {known}")
    if not isinstance(request.spec, Mapping):
        raise SpecInvalid("spec", f"must be an object, not {type(request.spec).__name__}")
    # Before the handler's own rules: they may then rely on plain JSON of a bounded size.
    spec = strict_json.check(request.spec, "spec", settings.REMORA_SPEC_BYTES_MAX)
    try:
        return validate(spec)
    except SpecInvalid as error:
        field = error.field if error.field.startswith("spec") else f"spec.{error.field}"
        raise SpecInvalid(field, error.message) from None


def _checked_fields(request: JobRequest) -> dict[str, Any]:
    _word(request.kind, "kind")
    _whole(request.priority, "priority", *PRIORITY_RANGE)
    return {
        "kind": request.kind,
        "queue": _word(request.queue, "queue"),
        "priority": request.priority,
        "label": _text(request.label, "label", KEY_CHARS_MAX),
        "concurrency_key": _text(request.concurrency_key, "concurrency_key", KEY_CHARS_MAX),
    }


def _policy(request: JobRequest) -> dict[str, Any]:
    """Retry policy: the deployment's where the request says nothing."""

    def given(value: Any, default: Any) -> Any:
        return default if value is None else value

    base_s = given(request.backoff_base_s, settings.REMORA_BACKOFF_BASE_S)
    # Only a cap that was asked for can contradict the base; the deployment's own gives way to it.
    base_s = _seconds(base_s, "backoff_base_s", BACKOFF_S_MAX)
    cap_s = given(request.backoff_cap_s, max(settings.REMORA_BACKOFF_CAP_S, base_s))
    max_attempts = given(request.max_attempts, settings.REMORA_MAX_ATTEMPTS)
    max_failures = given(request.max_failures, settings.REMORA_MAX_FAILURES)
    max_losses = given(request.max_losses, settings.REMORA_MAX_LOSSES)
    return {
        "max_attempts": _whole(max_attempts, "max_attempts", 1, ATTEMPTS_MAX),
        "max_failures": _whole(max_failures, "max_failures", 0, ATTEMPTS_MAX),
        "max_losses": _whole(max_losses, "max_losses", 1, ATTEMPTS_MAX),
        "backoff_base_s": base_s,
        "backoff_cap_s": _seconds(cap_s, "backoff_cap_s", BACKOFF_S_MAX, least=base_s),
    }


def _word(value: Any, field: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise SubmissionInvalid(
            field, f"must be 1 to {WORD_CHARS_MAX} of a-z A-Z 0-9 . _ -, starting with a letter or digit"
        )
    return value


def _text(value: Any, field: str, chars_max: int, *, empty: bool = True) -> str:
    try:
        return strict_json.check_text(value, field, chars_max=chars_max, empty=empty)
    except SpecInvalid as error:
        raise SubmissionInvalid(error.field, error.message) from None


def _whole(value: Any, field: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise SubmissionInvalid(field, f"must be a whole number from {least} to {most}, not {_shown(value)}")
    return value


def _seconds(value: Any, field: str, most: float, *, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise SubmissionInvalid(
            field, f"must be a number of seconds from {least:g} to {most:g}, not {_shown(value)}"
        )
    return float(value)


def _shown(value: Any) -> str:
    """A wrong value in few characters. A number of thousands of digits cannot even be spelled."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number beyond 64 bits"
    return ascii(value)[:60] if isinstance(value, int | float | str) else type(value).__name__
