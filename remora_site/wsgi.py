"""Entry point of the web process under a WSGI server such as gunicorn."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")

application = get_wsgi_application()
