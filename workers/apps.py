"""Django's handle on the app."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
    verbose_name = "Workers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs.signals import job_accepted
        from workers import handlers, tasks

        handlers.kinds()  # every process that can submit knows what may be submitted
        job_accepted.connect(tasks.on_job_accepted, dispatch_uid="workers.on_job_accepted")
