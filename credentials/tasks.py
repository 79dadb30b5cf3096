"""Celery's entry point: one pass of the credential reconciler."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from credentials import config


@shared_task(name="credentials.reconcile_credentials")
def reconcile_credentials() -> dict[str, Any]:
    return config.reconciler("beat").reconcile_credentials().as_dict()
