"""A step of the journal in words, for the demo's timeline."""

from typing import Any

from jobs.models import ProtocolEvent
from workers import display


def tell(event: ProtocolEvent, report: dict[str, Any]) -> str:
    """One line; an action without words of its own is told by what it changed."""
    after = event.after
    token = event.token
    if event.action == "Init":
        return "the job is accepted: Queued"
    if event.action == "AuthorizeAttempt":
        progress = after.get(f"attempt.{token}.progress", 0)
        start = f"the checkpoint at {display.size(progress)}" if progress else "the beginning"
        return f"token {token} is allocated and holds authority; it starts from {start}"
    if event.action == "ActivateAttempt":
        return f"attempt {token} runs under a live lease"
    if event.action == "PersistCheckpoint":
        return f"attempt {token}: {display.size(after.get('job.checkpoint', 0))} are safe"
    if event.action == "ReapLostAttempt":
        return f"attempt {token} has lost authority: the job is {after.get('job.phase', '')}"
    if event.action == "CrashWorker":
        return f"the worker of attempt {token} is declared Down: it stays so"
    if event.action == "ScheduleRetry":
        return "the job is Queued again"
    if event.action == "AcceptSuccess":
        return f"the result of attempt {token} is published: {after.get('job.phase', '')}"
    if event.action == "CleanupStage":
        return f"the stage of attempt {token} is removed"
    changed = ", ".join(f"{name} = {value}" for name, value in sorted(after.items()))
    return changed or f"attempt {token}"
