import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_database_of_a_test_is_a_real_postgresql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), version()")
        print(cursor.fetchone())


def test_redis(coordination_prefix: str) -> None:
    assert coordination_prefix.startswith("{remora-")
