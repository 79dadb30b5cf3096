"""The module's constants: how large a system the explorer walks, and which faults the world may play."""

from dataclasses import dataclass, fields
from typing import Final

from jobs.protocol.records import Limits
from jobs.protocol.states import Service

CRASH: Final = "crash"
FAULTS: Final = {
    CRASH: None,
    "coordination": Service.COORDINATION,
    "durable": Service.DURABLE,
    "target": Service.TARGET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """One finite system. Any fault named means that workers may crash; the services named are those that may
    fail.
    """

    jobs: int = 1
    workers: int = 1
    initial_workers: int = 1
    max_attempts: int = 1
    max_progress: int = 1
    lease_limit: int = 1
    reservation_limit: int = 1
    local_limit: int = 1
    global_limit: int = 1
    faults: frozenset[str] = frozenset()
    coord_losses: int = 0
    partitions: int = 0
    credential_intents: int = 0

    def __post_init__(self) -> None:
        """The module's ASSUME; and no number above what the explorer packs into a state (or could ever
        walk).
        """
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("coord_losses", "partitions", "credential_intents") else 1
            most = 15 if field.name in ("jobs", "workers", "max_attempts") else 255
            if field.name != "faults" and not least <= value <= most:
                raise ValueError(f"{field.name} is {value}; it must be from {least} to {most}")
        if self.initial_workers > self.workers:
            raise ValueError(f"initial_workers is {self.initial_workers}, of {self.workers} workers")
        if unknown := sorted(self.faults - FAULTS.keys()):
            raise ValueError(f"faults names {', '.join(unknown)}; known are {', '.join(FAULTS)}")

    @property
    def faults_enabled(self) -> bool:
        """FaultsEnabled."""
        return bool(self.faults)

    @property
    def fault_services(self) -> tuple[Service, ...]:
        """FaultServices."""
        named = (FAULTS[fault] for fault in FAULTS if fault in self.faults)
        return tuple(service for service in named if service is not None)

    @property
    def limits(self) -> Limits:
        return Limits(
            max_attempts=self.max_attempts,
            max_progress=self.max_progress,
            lease_limit=self.lease_limit,
            reservation_limit=self.reservation_limit,
            local_limit=self.local_limit,
            global_limit=self.global_limit,
        )

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(f"j{number}" for number in range(1, self.jobs + 1))

    @property
    def worker_ids(self) -> tuple[str, ...]:
        return tuple(f"w{number}" for number in range(1, self.workers + 1))
