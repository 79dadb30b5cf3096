"""Whatever the tree, and wherever its attempts are killed: the result is the source, and nothing proved is
sent twice.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transfers.runtime import DurableJob, kill_at, run_until_done
from tests.transfers.trees import KIB, link, make_dir, put, snapshot

NAMES = st.one_of(
    st.sampled_from([b"a", b"a-b", b"a.b", b"b", b"manifest.json", b"partial", b"files", b"1", b"x.part"]),
    st.binary(min_size=1, max_size=12).map(lambda raw: raw.replace(b"\0", b"0").replace(b"/", b"-")),
).filter(lambda name: name not in (b".", b".."))
SIZES = st.one_of(st.integers(0, 40 * KIB), st.integers(100 * KIB, 400 * KIB))
ENTRIES = st.one_of(
    st.tuples(st.just("file"), SIZES, st.sampled_from([0o644, 0o600, 0o755, 0o444])),
    st.tuples(st.just("dir"), st.just(0), st.sampled_from([0o755, 0o700, 0o555])),
    st.tuples(st.just("link"), st.integers(0, 50), st.just(0)),
)
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), ENTRIES), max_size=14)


def build(root: str, tree: list[tuple[list[bytes], tuple[str, int, int]]]) -> None:
    """Make what can be made: an entry whose place another one has taken is left out."""
    os.mkdir(root)
    for names, (kind, size, mode) in tree:
        path = b"/".join(names)
        try:
            if os.path.lexists(os.path.join(os.fsencode(root), path)):
                continue
            if kind == "file":
                put(root, path, size, mode)
            elif kind == "dir":
                make_dir(root, path, mode)
            else:
                link(root, path, b"../" * size + b"somewhere")
        except (NotADirectoryError, FileExistsError, FileNotFoundError):
            continue


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=TREES, kills=st.lists(st.integers(1, 120), max_size=5), parallelism=st.integers(1, 4))
def test_any_tree_arrives_however_often_it_is_killed(
    tree: list[tuple[list[bytes], tuple[str, int, int]]], kills: list[int], parallelism: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        build(f"{place}/source", tree)
        job = DurableJob(
            {"source": f"{place}/source", "target": f"{place}/target", "parallelism": parallelism}
        )
        events: list[Callable[[int], None]] = [kill_at(at) for at in kills]
        descriptor, _ = run_until_done(job, iter(events))
        assert job.invalidations == []
        assert snapshot(job.files(job.token)) == snapshot(f"{place}/source")
        assert list(job.handler.verify(descriptor)) == []
        for token in range(1, job.token + 1):
            job.clean(token)
        assert os.listdir(f"{place}/target") == []
