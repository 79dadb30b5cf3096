"""The module's liveness properties, checked on a whole explored graph under its fairness assumptions.

Each says, for one job or attempt: once `start` holds, `goal` holds later, provided that from some time on
some worker is available (RecoveryAssumption). It fails if a run exists that is fair, meets `start`, never
meets `goal` after that, and has an available worker for ever. The graph being finite, such a run exists
exactly if, from a state where `start` holds and through states where `goal` does not, one can reach a set of
states without `goal`, all with an available worker, in which a fair run may stay for ever
(`liveness_graph`). Stuttering is allowed, as in the module. So each check is exact, for its bounds: what it
finds is a counterexample, and when it finds none there is none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.protocol.explorer import Exploration
from jobs.protocol.explorer_environment import Environment
from jobs.protocol.explorer_steps import Label
from jobs.protocol.explorer_trace import Told, tell
from jobs.protocol.explorer_world import State, World
from jobs.protocol.liveness_fairness import FAIRNESS, Constraints, Rule
from jobs.protocol.liveness_graph import Graph
from jobs.protocol.liveness_lasso import Lasso, lasso
from jobs.protocol.records import JobView
from jobs.protocol.states import AttemptState, Phase, Service, StageState, WorkerState

Predicate = Callable[[State], bool]
OfJob = Callable[[JobView, Environment], bool]
OfAttempt = Callable[[JobView, int, Environment], bool]


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """`start` leads to `goal`; `about` names the instance: a job, an attempt, or the whole system."""

    about: Label
    start: Predicate
    goal: Predicate


@dataclass(frozen=True, slots=True)
class Starved:
    """A counterexample: a way to where the run stays for ever, and a round it can fairly repeat there."""

    about: Label
    way: list[Told]
    round: list[Told]


def check_liveness(found: Exploration, component_rules: Sequence[Rule] = ()) -> list[Starved]:
    """The module's liveness properties that fail, each with a counterexample."""
    return check(found, (*FAIRNESS, *component_rules), list(properties(found.world)))


def check(found: Exploration, rules: Sequence[Rule], wanted: Sequence[LeadsTo]) -> list[Starved]:
    """Those of the properties that fail under these fairness rules."""
    graph = Graph(found, Constraints(rules))
    states = list(found.numbers)
    recovered = [_recovered(found.world.environment(state)) for state in states]
    starved = []
    for leads_to in wanted:
        run = _counterexample(graph, states, recovered, leads_to)
        if run is not None:
            starved.append(_told(found.world, states, leads_to.about, run))
    return starved


def _counterexample(
    graph: Graph, states: Sequence[State], recovered: Sequence[bool], leads_to: LeadsTo
) -> Lasso | None:
    not_yet = bytearray(not leads_to.goal(state) for state in states)
    starts = [number for number, state in enumerate(states) if not_yet[number] and leads_to.start(state)]
    reached = graph.reachable(starts, not_yet)
    fair = graph.fair_part(number for number in reached if recovered[number])
    return None if fair is None else lasso(graph, reached, fair)


def _told(world: World, states: Sequence[State], about: Label, run: Lasso) -> Starved:
    way = tell(world, [states[number] for number in run.way], run.way_labels)
    return Starved(about, way, tell(world, [states[number] for number in run.round], run.round_labels))


def _recovered(environment: Environment) -> bool:
    """Some worker is available: Up, and it reaches every service."""
    return any(
        worker.state is WorkerState.UP and all(worker.can_reach(service) for service in Service)
        for worker in environment.workers
    )


def properties(world: World) -> Iterator[LeadsTo]:
    """Every property, for every job and attempt within bounds."""
    initial = world.initial()
    for position, job in enumerate(world.bounds.job_ids):
        of_job = _Of(world, position)
        label = (("job", job),)
        yield LeadsTo(Label("EventuallyDispatched", label), of_job(_queued), of_job(_dispatched))
        yield LeadsTo(Label("EventuallyTerminal", label), initial.__eq__, of_job(_terminal))
        for token in range(1, world.bounds.max_attempts + 1):
            for name, (start, goal) in OF_ATTEMPTS.items():
                about = Label(name, (*label, ("token", token)))
                yield LeadsTo(about, of_job.attempt(start, token), of_job.attempt(goal, token))
    yield LeadsTo(Label("EventuallySystemQuiescent"), initial.__eq__, world.quiescent)


@dataclass(frozen=True, slots=True)
class _Of:
    """Makes a predicate on one job's slice, or on one of its attempts, a predicate on a state."""

    world: World
    position: int

    def __call__(self, holds: OfJob) -> Predicate:
        return lambda state: holds(self.world.views(state)[self.position], self.world.environment(state))

    def attempt(self, holds: OfAttempt, token: int) -> Predicate:
        return self(lambda view, environment: holds(view, token, environment))


def _queued(view: JobView, environment: Environment) -> bool:
    return view.job.phase is Phase.QUEUED


def _dispatched(view: JobView, environment: Environment) -> bool:
    return view.job.phase is Phase.RUNNING or view.job.terminal


def _terminal(view: JobView, environment: Environment) -> bool:
    return view.job.terminal


def _lost(view: JobView, token: int, environment: Environment) -> bool:
    return view.current_authority(token) and not view.coordination.lease_is_live(token)


def _reaped(view: JobView, token: int, environment: Environment) -> bool:
    return not view.current_authority(token) or view.job.terminal


def _authorized(view: JobView, token: int, environment: Environment) -> bool:
    attempt = view.attempt(token)
    return attempt is not None and attempt.state is AttemptState.AUTHORIZED and view.current_authority(token)


def _resolved(view: JobView, token: int, environment: Environment) -> bool:
    attempt = view.attempt(token)
    executing = attempt is not None and attempt.state is AttemptState.EXECUTING
    return executing or _reaped(view, token, environment)


def _cleanup_eligible(view: JobView, token: int, environment: Environment) -> bool:
    attempt = view.attempt(token)
    if attempt is None or attempt.stage_state not in (StageState.PARTIAL, StageState.COMPLETE):
        return False
    if view.job.committed == token or view.current_authority(token):
        return False
    down = {worker.id for worker in environment.workers if worker.state is WorkerState.DOWN}
    return attempt.state is AttemptState.STOPPED or attempt.worker in down


def _cleaned(view: JobView, token: int, environment: Environment) -> bool:
    attempt = view.attempt(token)
    return attempt is not None and attempt.stage_state is StageState.CLEANED


OF_ATTEMPTS: Final[dict[str, tuple[OfAttempt, OfAttempt]]] = {
    "EventuallyReaped": (_lost, _reaped),
    "EventuallyAuthorizedResolved": (_authorized, _resolved),
    "EventuallyNonWinnerStagingCleaned": (_cleanup_eligible, _cleaned),
}
