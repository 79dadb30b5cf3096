"""The rules that span rows or time: migrations/rules.sql."""

from pathlib import Path

from django.db import migrations

FUNCTIONS = [
    "credential_intent_rules",
    "secret_path_rules",
    "committed_if_and_only_if_durable",
    "credential_version_rules",
    "version_pin_rules",
    "connection_rules",
    "credential_event_is_immutable",
    "credentials_no_truncate",
]


class Migration(migrations.Migration):
    dependencies = [("credentials", "0001_ledger")]

    operations = [
        migrations.RunSQL(
            Path(__file__).with_name("rules.sql").read_text(),
            "\n".join(f"DROP FUNCTION {name}() CASCADE;" for name in FUNCTIONS),
        )
    ]
