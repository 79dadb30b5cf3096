"""The login that `manage.py up` prints: made if it is not there, its password kept under REMORA_HOME.

Run as a program (`python -m remora_site.logins`), because the command itself starts before the database
does; it prints one line of JSON. A user `admin` that somebody else made, or whose password was changed, is
left alone.
"""

import json
import os
import sys
from pathlib import Path

USER = "admin"
FILE_NAME = "admin_password"


def ensure_admin(home: Path) -> dict[str, str]:
    """User name and password; an empty password if the one in use is not the one kept here."""
    from django.contrib.auth import get_user_model

    from remora_site.keeping import kept_secret

    password = kept_secret(home / FILE_NAME)
    users = get_user_model()
    user, created = users.objects.get_or_create(
        username=USER, defaults={"is_staff": True, "is_superuser": True}
    )
    if created:
        user.set_password(password)
        user.save()
    return {"user": USER, "password": password if user.check_password(password) else ""}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")
    import django

    django.setup()
    from django.conf import settings

    sys.stdout.write(json.dumps(ensure_admin(settings.REMORA_HOME)) + "\n")


if __name__ == "__main__":
    main()
