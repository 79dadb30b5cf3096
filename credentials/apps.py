"""Django's handle on the app."""

from django.apps import AppConfig


class CredentialsConfig(AppConfig):
    name = "credentials"
    verbose_name = "Credentials"
    default_auto_field = "django.db.models.BigAutoField"
