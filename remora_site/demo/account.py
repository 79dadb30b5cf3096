"""What the demo claims, checked against the stores and the disk after the job is over."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from remora_site.demo.source import differences
from workers import display
from workers.coordination import coordination

if TYPE_CHECKING:
    from remora_site.demo.play import Play

COMMITTED = 2
KILLED = 1


def checks(play: "Play") -> list[dict[str, Any]]:
    """Every claim: whether it held, and what was seen."""
    report, result = play.report, play.report["result"]
    compared, different = differences(play.home / "source", result_tree(result)) if result else (0, [])
    twice = sent(play)
    left = left_in_redis(report["job"])
    limit = settings.REMORA_CHECKPOINT_BYTES
    return [
        _check("the worker was killed at about half", bool(play.killed), _killed_at(play)),
        _check("the lease of the killed attempt was seen to lapse", play.lapsed, ""),
        _check(
            "the result was published once, by attempt 2",
            bool(result) and result["token"] == COMMITTED == report["committed"],
            f"{report['phase']}, committed token {report['committed']}",
        ),
        _check(
            "source and result are the same, file by file",
            bool(result) and not different,
            "; ".join(different) or f"{compared} names, bytes, modes and times",
        ),
        _check(
            "at most one checkpoint interval was sent twice",
            twice["twice_bytes"] <= limit,
            f"{display.size(twice['twice_bytes'])}; the interval is {display.size(limit)}",
        ),
        _check("the stage of the killed attempt is gone", stage_is_gone(play), ""),
        _check("Redis holds no key of the job", not left, ", ".join(left)),
    ]


def sent(play: "Play") -> dict[str, int]:
    """Bytes read from the source by both attempts, against what there is to read.

    The killed attempt read more than it lived to say: what was found in its stage after the kill counts.
    """
    attempts = {attempt["token"]: attempt for attempt in play.report["attempts"]}
    first, second = attempts.get(KILLED), attempts.get(COMMITTED)
    if first is None or second is None:
        return {"total_bytes": play.facts.bytes, "twice_bytes": play.facts.bytes}
    killed_read = max(first["bytes_sent"], play.killed.get("staged_bytes", 0))
    resumed_from = second["resumed_from_bytes"]
    return {
        "total_bytes": play.facts.bytes,
        "killed_attempt_bytes": killed_read,
        "resumed_from_bytes": resumed_from,
        "committed_attempt_bytes": second["bytes_sent"],
        "twice_bytes": max(0, killed_read + second["bytes_sent"] - play.facts.bytes),
    }


def stage_is_gone(play: "Play") -> bool:
    """Both as the durable store records it and as the disk has it."""
    killed = next((a for a in play.report["attempts"] if a["token"] == KILLED), None)
    return (
        killed is not None
        and killed["stage"] == "StageCleaned"
        and not Path(killed["stage_location"]).exists()
    )


def result_tree(result: dict[str, Any]) -> Path:
    """Where the user's files of a committed result are."""
    return Path(result["location"]) / "files"


def left_in_redis(job_id: Any) -> list[str]:
    """Whatever the CoordinationStore still holds of the job: asked by name, and found by a scan of all."""
    store = coordination()
    facts = asdict(store.snapshot([job_id]).facts[job_id])
    left = [name for name, fact in facts.items() if fact is not None]
    cursor: str | None = None
    while True:
        page = store.scan_jobs(cursor)
        if str(job_id) in page.job_ids and not left:
            left.append("a fact of its own")
        cursor = page.cursor
        if cursor is None:
            return left


def _killed_at(play: "Play") -> str:
    if not play.killed:
        return "the attempt was over before it could be killed"
    return f"{display.size(play.killed['progress'])} of {display.size(play.facts.bytes)}"


def _check(name: str, held: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "held": bool(held), "detail": detail}
