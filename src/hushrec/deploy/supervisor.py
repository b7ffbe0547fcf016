"""Who watches over a run: submits it, notices when it stops, waits for who was lost, submits the rest again.

An engine's job ends with its first dead process. The run does not: the server's checkpoint and the nodes' own
states hold all rounds that are done, so a new job goes on where the last one stopped, to the same bits.

A node is left out for what is proven against it, three times in one round: nobody can have another one banned.
One that is silent as often is left out, too, which is no blame: it is waited for as for one that is not there.
What may be the fault of several (mail that one wrote, another passed on and a third cannot open) is tried again,
and ends the run with a line that names them all.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hushrec.deploy.driver import Report, read_report
from hushrec.deploy.engines import JobState, Session
from hushrec.deploy.orders import Attempt
from hushrec.errors import HushrecError
from hushrec.files import write_private_file

_POLL_SECONDS = 0.1
_JOB_STATE_SECONDS = 2.0
_QUIET_SECONDS = 3.0  # of waiting, before a word is said of it
# How often a node may spoil the same round, beyond doubt, or be silent, before the run goes on without it.
_MOST_STRIKES = 3
_MOST_ATTEMPTS_WITHOUT_A_ROUND = 6


@dataclass(frozen=True)
class Terms:
    """How long to wait, and with whom to go on."""

    min_nodes: int
    patience_seconds: float = 60.0  # for nodes or the server to come back
    stall_seconds: float = 300.0  # without a round, a job is taken for dead


class Submitted(msgspec.Struct, frozen=True):
    """The job that was submitted last: `job.json`. Whoever watches over the run after us can find it."""

    attempt: Attempt
    job_id: str = ""  # not known yet


class _Wait:
    """A wait for somebody, of which a word is said if it takes long."""

    def __init__(self, seconds: float, tell: Callable[[str], None]) -> None:
        self._seconds, self._tell, self._begun = seconds, tell, time.monotonic()
        self._named = ""

    def is_over(self, whom: str) -> bool:
        """Whether patience has an end; else who is waited for is said, again when it is somebody else."""
        spent = time.monotonic() - self._begun
        if _QUIET_SECONDS < spent <= self._seconds and whom != self._named:
            self._named = whom
            self._tell(f"waiting for {whom}, for up to {self._seconds - spent:.0f} s (--patience)")
        return spent > self._seconds


@dataclass
class Supervisor:
    """Brings one ordered run to its end."""

    folder: Path  # of the run
    nodes: list[str]
    connect: Callable[[], Session]
    terms: Terms
    tell: Callable[[str], None]
    watch: Callable[[Report], None]
    banned: dict[str, str] = field(default_factory=dict)  # nodes, and why
    strikes: Counter[tuple[str, int]] = field(default_factory=Counter)
    suspects: dict[str, str] = field(
        default_factory=dict
    )  # who may have kept the next round from its end, and why

    def run(self) -> None:
        """Until it is done; or an error that says what to do."""
        report, fruitless, is_first = read_report(self.folder), 0, True
        if report is not None and report.status == "done":
            return
        while True:
            before = self._rounds_done()
            session, away = self._wait_for_nodes()
            try:
                job = (self._left_running(session) if is_first else None) or self._submit(session, sorted(away))
                report = None if job is None else self._see_through(session, job)
            finally:
                session.close()
            is_first = False
            if report is not None and report.status == "done":
                return
            if report is not None and report.status == "failed":
                raise HushrecError(report.reason)
            if report is not None:
                self._note_losses(report)
            if self._rounds_done() == before:
                fruitless += 1
            else:
                fruitless = 0
                self.suspects = {
                    name: why for name, why in self.suspects.items() if report and name in report.lost
                }
            if fruitless == _MOST_ATTEMPTS_WITHOUT_A_ROUND:
                raise self._nowhere(fruitless)

    def _rounds_done(self) -> int:
        report = read_report(self.folder)
        return report.round_number if report else 0

    def _connected(self) -> Session:
        wait = _Wait(self.terms.patience_seconds, self.tell)
        while True:
            try:
                return self.connect()
            except HushrecError as error:
                if wait.is_over("the server"):
                    raise HushrecError(f"{error}, then use --resume") from None
                time.sleep(_POLL_SECONDS)

    def _wait_for_nodes(self) -> tuple[Session, set[str]]:
        """A session, and those who do not come in time."""
        wanted = set(self.nodes) - set(self.banned)
        session = self._connected()
        wait = _Wait(self.terms.patience_seconds, self.tell)
        while True:
            try:
                present = session.connected() & wanted
            except HushrecError:
                session.close()
                if wait.is_over("the server"):
                    raise
                time.sleep(_POLL_SECONDS)
                session = self._connected()
                continue
            if present == wanted or wait.is_over(", ".join(sorted(wanted - present))):
                break
            time.sleep(_POLL_SECONDS)
        if len(present) < self.terms.min_nodes:
            session.close()
            failed = ", ".join(f"{name} failed: {why}" for name, why in sorted(self.banned.items()))
            raise HushrecError(
                f"{len(present)} of {len(self.nodes)} nodes are there, {self.terms.min_nodes} are needed"
                f"{f' ({failed})' if failed else ''}; start the others, then use --resume"
            )
        if present < wanted:
            missing = ", ".join(sorted(wanted - present))
            self.tell(f"going on without {missing} from round {self._rounds_done() + 1} on")
        return session, set(self.nodes) - present

    def _submitted(self) -> Submitted | None:
        try:
            return msgspec.json.decode((self.folder / "job.json").read_bytes(), type=Submitted)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _left_running(self, session: Session) -> Submitted | None:
        """The job of whoever watched over the run before us, if it is still at work."""
        left, report = self._submitted(), read_report(self.folder)
        if left is None or not left.job_id:
            return None
        if report is not None and report.attempt == left.attempt.attempt and report.status != "running":
            return None
        try:
            is_at_work = session.state(left.job_id) in (JobState.WAITING, JobState.RUNNING)
        except HushrecError:  # a server that does not know it
            return None
        if is_at_work:
            self.tell(f"the run has gone on by itself; watching over it from round {self._rounds_done() + 1} on")
        return left if is_at_work else None

    def _submit(self, session: Session, away: list[str]) -> Submitted | None:
        """A new job for the rest of the run; None if it was not taken."""
        report, before = read_report(self.folder), self._submitted()
        last = max(report.attempt if report else 0, before.attempt.attempt if before else 0)
        new = Submitted(Attempt(self.folder.name, last + 1, away))
        self._keep(new)
        try:
            job_id = session.submit(msgspec.json.encode(new.attempt), sorted(set(self.nodes) - set(away)))
        except HushrecError as error:
            self.tell(f"the job was not taken: {error}")
            time.sleep(1.0)
            return None
        taken = Submitted(new.attempt, job_id)
        self._keep(taken)
        return taken

    def _keep(self, submitted: Submitted) -> None:
        write_private_file(self.folder / "job.json", msgspec.json.encode(submitted))

    def _see_through(self, session: Session, submitted: Submitted) -> Report | None:
        """How the job ended; None if it did not tell."""
        job, number = submitted.job_id, submitted.attempt.attempt
        progress_at = asked_at = time.monotonic()
        last: Report | None = None
        while True:
            time.sleep(_POLL_SECONDS)
            report, now = read_report(self.folder), time.monotonic()
            if report is not None and report.attempt == number and report != last:
                last, progress_at = report, now
                self.watch(report)
            if last is not None and last.status != "running":
                if last.status == "paused":
                    # It may still wait for replies that do not come, with a worker on each node: those of the next
                    # job could not begin.
                    with suppress(HushrecError):
                        session.abort(job)
                return last
            if now - asked_at > _JOB_STATE_SECONDS:
                asked_at = now
                if self._has_ended(session, job):
                    # What the job said with its last breath counts.
                    final = read_report(self.folder)
                    if final is not None and final.attempt == number and final.status != "running":
                        return final
                    self.tell(f"the job ended after round {self._rounds_done()}; going on with a new one")
                    return None
            if now - progress_at > self.terms.stall_seconds:
                self.tell(
                    f"no progress for {self.terms.stall_seconds:g} s; ending the job, going on with a new one"
                )
                with suppress(HushrecError):
                    session.abort(job)
                return None

    def _has_ended(self, session: Session, job: str) -> bool:
        try:
            return session.state(job) in (JobState.DONE, JobState.FAILED)
        except HushrecError as error:
            self.tell(f"the server does not answer ({error})")
            return True

    def _nowhere(self, num_attempts: int) -> HushrecError:
        """Why a run is given up: all who may be at fault, since it is not known who is."""
        suspects = {name: why for name, why in self.suspects.items() if name not in self.banned}
        if not suspects:
            what = "see the logs in the kits, then use --resume"
        else:
            who = " or ".join(f"{name} ({why})" for name, why in sorted(suspects.items()))
            what = f"it may be the fault of {who}; see their logs, stop who is at fault, then use --resume"
        return HushrecError(f"no round was finished in {num_attempts} attempts; {what}")

    def _note_losses(self, report: Report) -> None:
        self.tell(f"{report.reason}; going on from round {report.round_number + 1}")
        self.suspects |= {name: why for name, why in report.lost.items() if name not in report.proven}
        for name in (*report.proven, *report.silent):
            why = report.lost[name]
            self.strikes[name, report.round_number] += 1
            if self.strikes[name, report.round_number] >= _MOST_STRIKES:
                self.banned[name] = why
                what = "failed" if name in report.proven else "was silent"
                self.tell(f"{name} {what} {_MOST_STRIKES} times in one round and is left out from now on")
