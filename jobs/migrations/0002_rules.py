"""Puts the protocol's rules on the tables (rules.sql)."""

from pathlib import Path

from django.db import migrations

RULES = Path(__file__).with_name("rules.sql")
REMOVE = """
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT oid::regprocedure AS signature FROM pg_proc
                 WHERE proname LIKE 'remora\\_%' AND pronamespace = current_schema()::regnamespace LOOP
        EXECUTE format('DROP FUNCTION %s CASCADE', found.signature);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]
    operations = [migrations.RunSQL(RULES.read_text(encoding="utf-8"), REMOVE)]
