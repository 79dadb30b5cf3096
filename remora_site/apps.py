"""Django's handle on the project's own app: the stack commands and the checks of its settings."""

from django.apps import AppConfig


class RemoraSiteConfig(AppConfig):
    name = "remora_site"
    verbose_name = "Remora"

    def ready(self) -> None:
        from remora_site import celery, checks  # noqa: F401  (the application for @shared_task; the checks)
