"""Rules that read their own tables only, and the rule of the checkpoint (own_names.sql)."""

from pathlib import Path

from django.db import migrations

RULES = Path(__file__).with_name("own_names.sql")
REMOVE = "DROP FUNCTION remora_job_checkpoint CASCADE"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_area_index")]
    operations = [migrations.RunSQL(RULES.read_text(encoding="utf-8"), REMOVE)]
