"""Letting go of the ledger's rows of what is over: no secret, no path, no way for either to come back."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef

from credentials import store
from credentials.models import (
    CredentialEvent,
    CredentialIntent,
    CredentialVersion,
    SecretPath,
    VersionState,
)
from credentials.protocol import FINAL_STATES


def prune_intents(before: datetime, rows_max: int) -> int:
    """Remove intents that ended before then, with their paths, versions and journal; how many.

    Only those all of whose paths are forgotten, and whose version is destroyed. One transaction, so bounded.
    """
    unforgotten = SecretPath.objects.filter(intent=OuterRef("pk"), forgotten_at=None)
    kept = CredentialVersion.objects.filter(intent=OuterRef("pk")).exclude(
        state=VersionState.DESTROYED, destroyed_at__lt=before
    )
    over = CredentialIntent.objects.filter(
        ~Exists(unforgotten), ~Exists(kept), state__in=FINAL_STATES, touched_at__lt=before
    ).order_by("touched_at")

    def work() -> int:
        ids = list(
            over.select_for_update(skip_locked=True, of=("self",)).values_list("pk", flat=True)[:rows_max]
        )
        CredentialVersion.objects.filter(intent__in=ids).delete()
        SecretPath.objects.filter(intent__in=ids).delete()
        CredentialEvent.objects.filter(intent_id__in=ids).delete()
        return CredentialIntent.objects.filter(pk__in=ids).delete()[0]

    return store.transact_durably(work)
