"""Each script's header is its contract: complete, true of its text, equal to what Python expects of it."""

import re
from enum import StrEnum

import pytest

from jobs.protocol.decision import ACTIONS, Store
from workers.coordination import replies
from workers.coordination.scripts import Script, ScriptInvalid, assemble, load_scripts, parse_contract

REPLIES: dict[str, type[StrEnum]] = {
    "enqueue": replies.EnqueueReply,
    "reserve": replies.ReserveReply,
    "activate_attempt": replies.ActivateReply,
    "renew_lease": replies.RenewReply,
    "regrant_lease": replies.RegrantReply,
    "expire_leases": replies.SweepReply,
    "expire_reservations": replies.SweepReply,
    "release_reservation": replies.ReleaseReservationReply,
    "release_lease": replies.ReleaseLeaseReply,
    "report_progress": replies.ReportReply,
    "publish_cancel_notice": replies.NoticeReply,
    "clear_stale_live_progress": replies.ClearProgressReply,
    "clean_terminal_coordination": replies.CleanReply,
    "discard_garbage": replies.DiscardReply,
}
PLURAL = {"expire_lease": "expire_leases", "expire_reservation": "expire_reservations"}
SCRIPTS = load_scripts()
GOOD = """-- Do(j): something.
-- ATOMIC   it is.
-- KEYS     permits
-- ARGV     nonce
-- ELEMENT  job
-- REPLIES  done | not_done
-- USES     base

return each(function(e) return 'done' end)
"""


def test_every_coordination_action_of_the_protocol_is_one_script() -> None:
    actions = {spec.function.__name__ for spec in ACTIONS.values() if spec.store is Store.COORDINATION}
    assert {PLURAL.get(action, action) for action in actions} <= set(SCRIPTS)


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_the_replies_of_a_script_are_those_that_python_knows(name: str) -> None:
    assert set(SCRIPTS[name].contract.replies) == {str(reply) for reply in REPLIES[name]}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_a_script_says_only_what_its_header_lists(script: Script) -> None:
    code = "\n".join(line for line in script.body.splitlines() if not line.startswith("--"))
    said = set(re.findall(r"return '(\w+)'", code)) | set(re.findall(r"return \w+ and '(\w+)'", code))
    assert said <= set(script.contract.replies)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_a_script_uses_what_its_header_names_and_builds_no_key(script: Script) -> None:
    assert not re.search(r"KEYS\[|ARGV\[", script.body), "keys and arguments go by their names"
    assert set(re.findall(r"\bKEY\.(\w+)", script.source)) <= set(script.contract.keys)
    assert set(re.findall(r"\bARG\.(\w+)", script.body)) <= set(script.contract.argv)
    in_elements = set(re.findall(r"\be\.(\w+)", script.body))
    assert in_elements <= set(script.contract.element)
    for name in set(script.contract.argv) - {"nonce"}:
        assert f"ARG.{name}" in script.source, f"{name} is listed and not used"


def test_a_good_header_is_read() -> None:
    contract = parse_contract("do", GOOD)
    assert contract.purpose == "Do(j): something."
    assert contract.replies == ("done", "not_done")
    assert contract.element == ("job",)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("-- Do(j): something.\n", "", "does not begin"),
        ("-- ATOMIC   it is.\n", "", "lacks ATOMIC"),
        ("-- REPLIES  done | not_done\n", "", "lacks REPLIES"),
        ("-- USES     base\n", "-- USES\n", "lacks USES"),
        ("permits", "permit", "no such key: permit"),
        ("-- KEYS     permits", "-- KEYS     permits permits", "twice"),
        ("done | not_done", "done | Not-done", "not a name"),
        ("nonce", "lease_ms", "nonce"),
        ("-- USES     base", "-- USES     bass", "no such include: bass"),
        ("-- ARGV", "-- ARGS", "ARGS is unknown"),
        ("-- USES", "-- KEYS     index\n-- USES", "KEYS is unknown or written twice"),
    ],
)
def test_a_wrong_header_is_refused_when_it_is_loaded(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(ScriptInvalid, match=complaint):
        assemble("do", GOOD.replace(old, new), {"base": ""})


def test_arguments_go_by_name_and_a_wrong_name_is_refused() -> None:
    script = assemble("do", GOOD, {"base": ""})
    assert script.arguments({"nonce": "n"}, [{"job": "a"}, {"job": "b"}]) == ["n", "a", "b"]
    with pytest.raises(KeyError):
        script.arguments({"nonce": "n", "more": 1}, [{"job": "a"}])
    with pytest.raises(KeyError):
        script.arguments({"nonce": "n"}, [{"jobs": "a"}])
    with pytest.raises(KeyError):
        script.arguments({}, [])
