"""Django's handle on the app."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
    verbose_name = "Workers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from workers import handlers

        handlers.kinds()  # every process that can submit knows what may be submitted
