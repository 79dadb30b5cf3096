"""`submit`: what is right is accepted once; what is wrong is refused by its field, and nothing is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.models import Job, ProtocolEvent
from tests.operators.shell import run, run_process

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("text")
    return tmp_path


def spec(tree: Path, **changes: object) -> str:
    return json.dumps({"source": f"{tree}/in", "target": f"{tree}/out"} | changes)


def test_a_job_is_accepted_and_its_id_is_all_that_stdout_holds(tree: Path) -> None:
    said = run("submit", "transfer", "--spec", spec(tree))
    assert said.code == 0
    assert Job.objects.get().id == Job.objects.get(id=said.out.strip()).id


def test_the_same_key_again_gives_the_same_job(tree: Path) -> None:
    first = run("submit", "transfer", "--spec", spec(tree), "--key", "k", "--json").json
    again = run("submit", "transfer", "--spec", spec(tree), "--key", "k", "--json").json
    assert (first["created"], again["created"]) == (True, False)
    assert first["job"] == again["job"]
    assert Job.objects.count() == 1


def test_the_same_key_with_another_body_is_a_conflict(tree: Path) -> None:
    run("submit", "transfer", "--spec", spec(tree), "--key", "k")
    (tree / "other").mkdir()
    said = run("submit", "transfer", "--spec", spec(tree, target=f"{tree}/other"), "--key", "k", "--json")
    assert said.code == 2
    assert said.json["error"]["field"] == "key"


def test_source_and_target_may_be_given_by_name(tree: Path) -> None:
    said = run("submit", "transfer", "--source", f"{tree}/in", "--target", f"{tree}/out", "--json")
    assert Job.objects.get(id=said.json["job"]).spec["source"] == f"{tree}/in"


def test_a_spec_is_read_from_a_file(tree: Path) -> None:
    (tree / "spec.json").write_text(spec(tree))
    assert run("submit", "transfer", "--spec", f"@{tree}/spec.json").code == 0


def test_every_option_reaches_the_job(tree: Path) -> None:
    options = ["--queue", "bulk", "--priority", "7", "--label", "nightly", "--max-attempts", "3"]
    run("submit", "transfer", "--spec", spec(tree), *options, "--concurrency-key", "disk-1")
    job = Job.objects.get()
    given = (job.queue, job.priority, job.label, job.max_attempts, job.concurrency_key)
    assert given == ("bulk", 7, "nightly", 3, "disk-1")


WRONG = {
    "an unknown kind, with the nearest": (["transfr"], {}, "kind", "Did you mean 'transfer'?"),
    "no spec": (["transfer"], None, "spec.source", ""),
    "a missing source": ([], {"source": "/does/not/exist"}, "spec.source", "/does/not/exist"),
    "a source that is relative": ([], {"source": "in"}, "spec.source", "absolute"),
    "a target inside the source": ([], {"target": "{tree}/in/out"}, "spec.target", "inside"),
    "a NUL byte": ([], {"target": "/tmp/a\0b"}, "spec.target", "NUL"),
    "a lone surrogate": ([], {"target": "/tmp/\ud800"}, "spec.target", ""),
    "an unknown key": ([], {"colour": "red"}, "spec.colour", "parallelism"),
    "a wrong type": ([], {"source": 3}, "spec.source", ""),
    "JSON that ends early": (["transfer", "--spec", '{"source": '], None, "spec", "line 1 column 12"),
    "JSON that is no object": (["transfer", "--spec", "[1]"], None, "spec", "a list"),
    "a key that is there twice": (["transfer", "--spec", '{"a": 1, "a": 2}'], None, "spec", "twice"),
    "NaN": (["transfer", "--spec", '{"parallelism": NaN}'], None, "spec", "NaN"),
    "a number without end": (["transfer", "--spec", '{"parallelism": 1e999}'], None, "spec", "too large"),
    "nesting without end": (["transfer", "--spec", "[" * 100_000], None, "spec", "deep"),
    "a file that is not there": (["transfer", "--spec", "@/does/not/exist"], None, "spec", "No such file"),
    "an empty key": (["transfer", "--key", ""], {}, "key", ""),
    "a queue that is no word": (["transfer", "--queue", "a b"], {}, "queue", ""),
    "a priority out of range": (["transfer", "--priority", "99999"], {}, "priority", ""),
    "no attempts at all": (["transfer", "--max-attempts", "0"], {}, "max_attempts", ""),
    "a secret": (["transfer", "--secret", "password=-"], {}, "secret", "not available"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_with_the_field_and_nothing_stored(name: str, tree: Path) -> None:
    arguments, changes, field, said_of_it = WRONG[name]
    arguments = arguments or ["transfer"]
    if changes is not None:
        filled = {
            key: value.replace("{tree}", str(tree)) if isinstance(value, str) else value
            for key, value in changes.items()
        }
        arguments = [*arguments, "--spec", spec(tree, **filled)]
    said = run("submit", *arguments, "--json")
    assert said.code == 2
    error = said.json["error"]
    assert error["field"] == field
    assert said_of_it in error["message"]
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"{field}: ")
    assert not Job.objects.exists()
    assert not ProtocolEvent.objects.exists()


def test_a_user_sees_one_message_and_no_traceback(process_environment: dict[str, str], tree: Path) -> None:
    said = run_process(process_environment, "submit", "transfer", "--spec", spec(tree, colour=1))
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        "spec.colour: is no key of a transfer; known: source, target, parallelism."
    ]


def test_wrong_arguments_are_one_line_of_json_too(process_environment: dict[str, str]) -> None:
    said = run_process(process_environment, "submit", "--json")
    assert said.code == 2
    assert said.json["error"]["field"] == "arguments"
    assert "KIND" in said.err


def test_a_spec_is_read_from_stdin(process_environment: dict[str, str], tree: Path) -> None:
    arguments = ("submit", "transfer", "--spec", "@-", "--json")
    said = run_process(process_environment, *arguments, stdin=spec(tree))
    assert said.code == 0, said
    assert Job.objects.get(id=said.json["job"]).spec["source"] == f"{tree}/in"


@pytest.mark.parametrize(
    ("variable", "address"),
    [("DATABASE_URL", "postgres://remora:no@127.0.0.1:9/remora"), ("DATABASE_URL", "")],
)
def test_without_a_database_it_says_what_to_do(
    process_environment: dict[str, str], variable: str, address: str, tree: Path
) -> None:
    environment = process_environment | {variable: address, "REMORA_HOME": str(tree / "no-stack")}
    said = run_process(environment, "submit", "transfer", "--spec", spec(tree), "--json")
    assert said.code == 3
    assert said.json["error"]["field"] == "database"
    assert "manage.py stack up" in said.err
    assert "Traceback" not in said.err
