"""A wrong spec is refused at submission, with an error that names the field and says what is allowed."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import SpecInvalid
from workers import handlers
from workers.handlers.transfer import TransferHandler


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "source/inner").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (tmp_path / "file").write_text("x")
    os.symlink(tmp_path / "source/inner", tmp_path / "into-source")
    os.symlink(tmp_path / "source", tmp_path / "source-link")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling")
    (tmp_path / "target" / str(uuid.UUID(int=5)) / "1/files").mkdir(parents=True)
    return tmp_path


GOOD: dict[str, Any] = {"source": "{}/source", "target": "{}/target"}
AREA = f"{{}}/target/{uuid.UUID(int=5)}/1/files"


def at(places: Path, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.replace("{}", str(places)) if isinstance(value, str) else value
        for key, value in spec.items()
    }


@pytest.mark.parametrize(
    ("field", "says", "spec"),
    [
        ("sorce", "Did you mean 'source'", {"sorce": "/x", "target": "{}/target"}),
        ("parallel", "Did you mean 'parallelism'", GOOD | {"parallel": 3}),
        ("zzz", "known: source, target, parallelism", GOOD | {"zzz": 3}),
        ("source", "required", {"target": "{}/target"}),
        ("target", "required", {"source": "{}/source"}),
        ("source", "text", GOOD | {"source": 5}),
        ("target", "text", GOOD | {"target": None}),
        ("source", "absolute", GOOD | {"source": "source"}),
        ("target", "absolute", GOOD | {"target": ""}),
        ("source", "NUL", GOOD | {"source": "{}/sou\0rce"}),
        ("target", "NUL", GOOD | {"target": "{}/targ\0et"}),
        ("source", "surrogate", GOOD | {"source": "{}/\udcff"}),
        ("target", "surrogate", GOOD | {"target": "{}/\ud800"}),
        ("source", "'..'", GOOD | {"source": "{}/target/../source"}),
        ("target", "'..'", GOOD | {"target": "{}/source/.."}),
        ("target", "at most", GOOD | {"target": "/" + "long/" * 1000}),
        ("source", "does not exist", GOOD | {"source": "{}/missing"}),
        ("source", "must be a directory", GOOD | {"source": "{}/dangling"}),
        ("source", "must be a directory", GOOD | {"source": "{}/file"}),
        ("target", "must be a directory", GOOD | {"target": "{}/file"}),
        ("target", "must be a directory", GOOD | {"target": "{}/file/below"}),
        ("target", "must be a directory", GOOD | {"target": "{}/dangling/below"}),
        ("target", "another directory", GOOD | {"target": "{}/source"}),
        ("target", "another directory", GOOD | {"target": "{}/source-link"}),
        ("target", "inside the source", GOOD | {"target": "{}/source/inner"}),
        ("target", "inside the source", GOOD | {"target": "{}/source/new/newer"}),
        ("target", "inside the source", GOOD | {"target": "{}/into-source/new"}),
        ("target", "inside the source", GOOD | {"source": "/", "target": "{}/target"}),
        ("source", "staging area", GOOD | {"source": AREA}),
        ("parallelism", "from 1 to 16", GOOD | {"parallelism": 0}),
        ("parallelism", "from 1 to 16", GOOD | {"parallelism": 17}),
        ("parallelism", "from 1 to 16", GOOD | {"parallelism": True}),
        ("parallelism", "from 1 to 16", GOOD | {"parallelism": "4"}),
        ("parallelism", "from 1 to 16", GOOD | {"parallelism": 2.0}),
    ],
)
def test_a_wrong_spec_is_refused_naming_the_field(
    places: Path, field: str, says: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        TransferHandler().validate(at(places, spec))
    assert refused.value.field == field
    assert says in refused.value.message


def test_a_spec_that_is_no_object_is_refused() -> None:
    with pytest.raises(SpecInvalid, match="must be an object"):
        TransferHandler().validate(["source", "target"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec", [GOOD, GOOD | {"source": "{}/source-link"}, GOOD | {"target": "{}/new/newer"},
    GOOD | {"parallelism": 16},
             GOOD | {"source": "{}//source/./"}]
)  # fmt: skip
def test_a_right_spec_has_one_normal_form(places: Path, spec: dict[str, Any]) -> None:
    normal = TransferHandler().validate(at(places, spec))
    assert set(normal) == {"source", "target", "parallelism"}
    assert TransferHandler().validate(normal) == normal
    assert "//" not in normal["source"]


def test_an_unknown_kind_is_refused_with_the_nearest_one() -> None:
    assert handlers.handler_for("transfer").kind == "transfer"
    with pytest.raises(SpecInvalid, match="Did you mean 'transfer'") as refused:
        handlers.handler_for("trasnfer")
    assert refused.value.field == "kind"
