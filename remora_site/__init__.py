"""The project: settings, the Celery application, addresses of pages, and the embedded stack.

The Celery application is imported here so that `@shared_task` finds it in every process that loads Django.
"""

from remora_site.celery import app as celery_app

__all__ = ("celery_app",)
