"""The project: settings, the Celery application, addresses of pages, and the embedded stack.

Nothing is imported here: the stack must be able to start before the settings are read. The Celery application
is made when Django's apps are ready (apps.py), so every process that loads Django sends tasks through it.
"""
