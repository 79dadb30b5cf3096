"""Entry point of the web process under an ASGI server."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")

application = get_asgi_application()
