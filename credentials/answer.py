"""What a durable function answers: the decision of the protocol, or why the row does not fit the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from credentials.models import CredentialIntent
from credentials.protocol import Accepted, IntentRecord, Refused


class Misfit(StrEnum):
    """Why a row does not fit a request, before any conjunct is looked at."""

    NO_SUCH_INTENT = "NO_SUCH_INTENT"
    LOCKED_BY_ANOTHER = "LOCKED_BY_ANOTHER"
    ANOTHER_TRY = "ANOTHER_TRY"
    NOT_CURRENT = "NOT_CURRENT"
    RETIRED = "RETIRED"
    NAME_TAKEN = "NAME_TAKEN"


@dataclass(frozen=True, slots=True)
class Unfit:
    reason: Misfit
    accepted: ClassVar[bool] = False
    refused: ClassVar[bool] = True


Answer = Accepted[IntentRecord] | Refused | Unfit
# What a step writes beside the intent; the intent's own further columns, or why the row does not fit after
# all.
Effect = Callable[[CredentialIntent], dict[str, Any] | Unfit]
