"""Text that is about to be stored or logged, without the secrets it may carry.

Pure, standard library only. Errors of libraries quote URLs, headers and bodies; whoever stores or logs such
a text passes it through `scrub` first. `jobs` cannot import this (it knows nothing of credentials):
`workers` scrubs a reason before it hands it to a transition, and the project's log formatter scrubs every
line.

Scheme, host and path stay, so that a message is still of use. A query keeps its names and loses every
value: which parameter signs a URL is the far side's choice.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from credentials.secret import Material, Secret

GONE: Final = "***"
# Patterns below are linear, and this bounds them all the same. What is cut is the end, before anything is
# matched.
TEXT_CHARS_MAX: Final = 256 * 1024
WORD_CHARS_MAX: Final = 4096
# Material shorter than this is not searched for: hiding every "a" of a text tells more than it hides.
KNOWN_CHARS_MIN: Final = 4
CAUSES_MAX: Final = 8

_NAMES: Final = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|x-vault-token|x-auth-token|x-amz-security-token|x-api-key|"
    r"api[_-]?key|access[_-]?key|secret[_-]?key|secret[_-]?id|private[_-]?key|client[_-]?secret|client[_-]?token|"
    r"(?:access|refresh|id|session|auth|security)[_-]?token|password|passwd|passphrase|pwd|secret|token|signature|"
    r"credentials?"
)
_QUOTED: Final = r"\"(?:[^\"\\\n]|\\.){0,8192}\"|'(?:[^'\\\n]|\\.){0,8192}'"
_KEY_BLOCK: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}KEY-----.{0,16384}?(?:-----END [A-Z ]{0,40}KEY-----|\Z)", re.S
)
_USERINFO: Final = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]{1,20}:(?://|%2[fF]%2[fF]))[^\s/?#\"'<>]{1,4096}@"
)
_BARE_USERINFO: Final = re.compile(r"(?<![\w/@:.-])[\w.%+~-]{1,128}:[^\s/?#@\"'<>]{1,1024}@(?=[\w\[])")
_QUERY: Final = re.compile(r"\?(?P<query>[^\s\"'<>#?]{1,16384})(?P<fragment>#[^\s\"'<>]{1,4096})?")
_FRAGMENT: Final = re.compile(
    r"(?P<url>[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s\"'<>#]{1,4096})#[^\s\"'<>]{1,4096}"
)
_PARAMETER: Final = re.compile(r"(?P<name>[A-Za-z0-9_.\[\]-]{1,64})=.*", re.S)
_SCHEME: Final = re.compile(
    r"(?i)\b(?P<scheme>bearer|basic|digest|negotiate|aws4-hmac-sha256)[ ]+[^\s\"'<>]{6,16384}"
)
# A header runs to the end of its line, or of the quotes it stands in; a named value is one word or one
# quoted text.
_HEADER: Final = re.compile(
    rf"(?i)(?P<name>\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\b[\"']?\s{{0,4}}[:=])"
    rf"(?!\s{{0,4}}\*\*\*(?:[\r\n,'\"}}]|\Z))\s{{0,4}}(?:{_QUOTED}|[^\r\n\"'{{}}]{{1,8192}})"
)
_NAMED: Final = re.compile(
    rf"(?i)(?P<name>(?<![A-Za-z])(?:[a-z0-9]{{1,20}}[_-]){{0,3}}(?:{_NAMES})\b[\"']?\s{{0,4}}[:=]\s{{0,4}})"
    rf"(?P<value>{_QUOTED}|[^\s\"',;&{{}}\[\]()]{{1,8192}})"
)
_SENSITIVE_NAME: Final = re.compile(rf"(?i)(?:[a-z0-9]{{1,20}}[_-]){{0,3}}(?:{_NAMES})")
_TOKENS: Final = re.compile(
    r"\b(?:hv[sbr]\.[A-Za-z0-9_-]{16,}|[sbr]\.[A-Za-z0-9]{24,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]{8,}|"
    r"(?:AKIA|ASIA)[A-Z0-9]{16})\b"
)


def scrub(text: str, known: Iterable[Secret] = ()) -> str:
    """The text without userinfo, query values, what looks like a credential, and any form of `known` ones."""
    for secret in known:
        for form in _forms(secret):
            text = text.replace(form, GONE)
    if len(text) > TEXT_CHARS_MAX:  # the last word may be half of something
        text = text[:TEXT_CHARS_MAX]
        text = text[: max(text.rfind(" "), text.rfind("\n"), TEXT_CHARS_MAX - WORD_CHARS_MAX)]
    text = _KEY_BLOCK.sub(GONE, text)
    text = _USERINFO.sub(rf"\g<scheme>{GONE}@", text)
    text = _BARE_USERINFO.sub(f"{GONE}@", text)
    text = _QUERY.sub(_without_values, text)
    text = _FRAGMENT.sub(rf"\g<url>#{GONE}", text)
    text = _HEADER.sub(rf"\g<name> {GONE}", text)
    text = _NAMED.sub(_without_value, text)
    text = _SCHEME.sub(rf"\g<scheme> {GONE}", text)
    return _TOKENS.sub(GONE, text)


def describe(error: BaseException, known: Iterable[Secret] = ()) -> str:
    """What to store of an exception: its types and messages, also those of its causes, scrubbed."""
    secrets = tuple(known)
    parts: list[str] = []
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen and len(parts) < CAUSES_MAX:
        seen.add(id(at))
        message = str(at)
        parts.append(f"{type(at).__name__}: {message}" if message else type(at).__name__)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return scrub(" <- ".join(parts), secrets)


def scrub_values(value: Any, depth_max: int = 8) -> Any:
    """A JSON-like value with every text in it scrubbed, and without what stands under a credential's name."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping) and depth_max:
        return {
            key: GONE
            if isinstance(item, str) and _SENSITIVE_NAME.fullmatch(str(key))
            else scrub_values(item, depth_max - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple) and depth_max:
        return [scrub_values(item, depth_max - 1) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return scrub(str(value))


def secrets_of(materials: Iterable[Material]) -> list[Secret]:
    """All that a holder of these materials knows, to be passed as `known`."""
    return [secret for material in materials for secret in material.values()]


def _without_value(match: re.Match[str]) -> str:
    # An attempt's token is a number, and no secret.
    is_fence = match["name"].lower().rstrip(" :=\"'").endswith("token") and match["value"].isdigit()
    return match[0] if is_fence and len(match["value"]) < 10 else f"{match['name']}{GONE}"


def _without_values(match: re.Match[str]) -> str:
    parameters = (_PARAMETER.fullmatch(part) for part in re.split("[&;]", match["query"]))
    hidden = "&".join(f"{parameter['name']}={GONE}" if parameter else GONE for parameter in parameters)
    if "=" not in match["query"]:
        # "is it there?)" is prose, not a query: without a name and a value nothing is taken for one.
        return match[0] if len(match["query"]) < KNOWN_CHARS_MIN else f"?{hidden}"
    return f"?{hidden}" + (f"#{GONE}" if match["fragment"] else "")


def _forms(secret: Secret) -> list[str]:
    """The secret as it may stand in a URL, a header, JSON or a repr; the longest first."""
    material = secret.reveal()
    if len(material) < KNOWN_CHARS_MIN:
        return []
    raw = material.encode("utf-8", "surrogatepass")
    forms = {material, quote(raw, safe=""), quote(raw), quote_plus(raw), repr(material)[1:-1]}
    forms |= {material.encode("unicode_escape").decode(), material.replace("\\", "\\\\").replace('"', '\\"')}
    forms |= {line for line in material.splitlines() if len(line) >= KNOWN_CHARS_MIN * 2}
    # What a base64 text of "user:material" shows depends on where in it the material begins.
    for lead in range(3):
        whole = base64.b64encode(b"\0" * lead + raw).decode().rstrip("=")
        first, last = (0, 2, 3)[lead], len(whole) - (1 if (lead + len(raw)) % 3 else 0)
        if last - first >= KNOWN_CHARS_MIN * 2:
            forms |= {whole[first:last], whole[first:last].replace("+", "-").replace("/", "_")}
    return sorted(forms, key=len, reverse=True)
