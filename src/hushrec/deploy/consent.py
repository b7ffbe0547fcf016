"""What a node agrees to: settings that audits call protected, and what its owner accepted in words.

What is protected, and what other settings expose, is declared beside each system (`About.protected`,
`About.exposes`). Nothing is accepted in general: words name the system and the settings that they are about, and
cover no others.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hushrec.deploy.enrolment import NodeSettings, is_as_wanted
from hushrec.deploy.node_ledger import NodeLedger, Opened, cost_of
from hushrec.deploy.orders import Invitation
from hushrec.errors import HushrecError, PublicError
from hushrec.protocol import About, AnySystem, Exposure, Spending
from hushrec.registry import SYSTEMS, system_named
from hushrec.runtime.packets import Kind, Packet, about
from hushrec.settings import are_as, shown_to_parties

_HANDED_OVER = Exposure("the server gets every row itself")
_UNKNOWN = Exposure("nobody has measured what the server can read")


class NotAgreed(PublicError):
    """What a node's owner did not agree to."""


# --- What settings expose --------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What audits say of a system with some settings."""

    is_protected: bool
    words: str  # of what is still seen; else those by which an owner accepts it


def verdict_on(system: AnySystem, config: Any) -> Verdict:
    """Whether settings are protected, and the words for what they are."""
    config, told = system.in_full(config), system.about
    for one in told.protected:
        if are_as(config, one.when):
            return Verdict(True, one.words)
    return Verdict(False, next(_said(told.name, one) for one in _exposes(told) if are_as(config, one.when)))


def words_of(system: AnySystem) -> list[str]:
    """All that an owner can accept of a system."""
    return [_said(system.name, one) for one in _exposes(system.about)]


def _exposes(told: About) -> tuple[Exposure, ...]:
    return (*told.exposes, _HANDED_OVER if told.hands_over_data else _UNKNOWN)


def _said(name: str, exposure: Exposure) -> str:
    """The system, the settings, and what they expose.

    >>> _said("fedrec", Exposure("the server reads all", {"rho": 0, "secure_sums": False}))
    'fedrec with rho 0, no secure sums: the server reads all'
    """
    return f"{name}{_with(exposure.when)}: {exposure.words}"


def _with(when: Mapping[str, Any]) -> str:
    parts = []
    for name, value in when.items():
        spoken = name.replace("_", " ")
        parts.append(f"{'' if value else 'no '}{spoken}" if isinstance(value, bool) else f"{spoken} {value}")
    return f" with {', '.join(parts)}" if parts else ""


# --- What an owner says ----------------------------------------------------------------------------------------


def check_words(words: Iterable[str]) -> None:
    """Refuse to accept what no system exposes: nothing would ever be agreed to by it."""
    known = [one for name in SYSTEMS for one in words_of(SYSTEMS[name])]
    for one in words:
        if one not in known:
            near = difflib.get_close_matches(one, known, 1)
            hint = (
                f'did you mean "{near[0]}"?' if near else "a refused order says the words, as in private/node.log"
            )
            raise HushrecError(f"--accept {one!r}: no system exposes that; {hint}")


def accepted_with(before: Mapping[str, str], accepted: Iterable[str], withdrawn: Iterable[str]) -> dict[str, str]:
    """What is accepted from now on, and since when: once said, it stays until it is withdrawn."""
    now, gone = datetime.now(UTC).date().isoformat(), list(withdrawn)
    for words in gone:
        if words != "all" and words not in before:
            raise HushrecError(f"--withdraw {words!r}: that is not accepted; hushrec deploy status shows what is")
    kept = {words: since for words, since in before.items() if "all" not in gone and words not in gone}
    return {**dict.fromkeys(accepted, now), **kept}


def line_to_accept(words: str) -> str:
    """What an owner types once, beside the node's other options. Paths are not the server's business."""
    return f'hushrec deploy node KIT --data FILE --accept "{words}"'


# --- What a node does with it ----------------------------------------------------------------------------------


def consent_to(settings: NodeSettings, system: AnySystem, config: Any) -> str:
    """Why a node takes part with such settings, as the server may know it; refused if it does not."""
    is_protected, words = verdict_on(system, config)
    if is_protected:
        return f"protected: {words}"
    if words in settings.accepted:
        return f"accepted: {words}"
    if settings.accepts_everything:
        return "accepts everything, for a rehearsal"
    raise NotAgreed(f"its owner has not accepted that; the line for it: {line_to_accept(words)}")


def check_consent(settings: NodeSettings, invitation: Invitation) -> str:
    """A node takes part in what its owner agreed to, and in nothing else. Why it does, if it does."""
    if invitation.system not in settings.systems:
        raise NotAgreed(
            f"this node does not take part in {invitation.system}; its owner can allow it with --allow"
        )
    system = system_named(invitation.system)
    try:
        system.holders.check_files(settings.files, invitation.system)
    except PublicError as error:
        raise NotAgreed(str(error)) from None
    for name, value in settings.required.items():
        if not is_as_wanted(invitation.config.get(name), value):
            raise NotAgreed(f"this node takes part only with {name} {value}")
    if invitation.seed is not None and not settings.accepts_shared_seed:
        raise NotAgreed("this node draws from its own secret; order the run with --seeds secret")
    return consent_to(settings, system, system.configure(invitation.config))


def ledger_of(kit: Path) -> NodeLedger:
    """The ledger of a node."""
    return NodeLedger(kit / "private" / "ledger.jsonl")


class Keeper:
    """Keeps a node to what its owner agreed to, and its ledger."""

    def __init__(self, kit: Path, settings: NodeSettings) -> None:
        self._settings, self._ledger = settings, ledger_of(kit)
        self._looked_at: set[str] = set()  # runs that this process has found to be as its owner wants them now

    @contextmanager
    def over(self, packet: Packet, spent: Callable[[], Spending | None]) -> Iterator[None]:
        """Refuse a packet that goes too far; when it is served, write that down before the reply leaves.

        `spent`: what the noise of the packet's run came to, asked for when the run ends.
        """
        run, ledger, budget = packet.run_id.hex(), self._ledger, self._settings.budget
        if packet.kind == Kind.ENROL:
            opened = self._opened(run, about(packet, Invitation))
            ledger.check_open(opened, budget)
            yield
            ledger.open(opened, budget)
        elif packet.kind in (Kind.ASK, Kind.RELAY):
            if run in ledger.entries():  # who asks for another one is told so by the run itself
                self._check_still(run)
                ledger.check_round(run, packet.round_number)
            yield
            if packet.kind == Kind.ASK:  # mail of others that is passed on tells nothing of this node's people
                ledger.note_round(run, packet.round_number, _now())
        elif packet.kind == Kind.EVALUATE:
            yield
            ledger.end(run, spent(), _now())
        else:
            yield

    def last_round(self, run: str) -> int:
        """The last round of a run that was answered; 0: none was."""
        entry = self._ledger.entries().get(run)
        return 0 if entry is None else max(entry.rounds, default=0)

    def _check_still(self, run: str) -> None:
        """Whether the owner, who may have changed his mind since, still agrees to a run."""
        if run in self._looked_at:
            return
        opened = self._ledger.entries()[run].opened
        if opened.system not in self._settings.systems:
            raise NotAgreed(f"this node does not take part in {opened.system} any more")
        system = system_named(opened.system)
        consent_to(self._settings, system, system.configure(opened.settings))
        self._ledger.check_open(opened, self._settings.budget)
        self._looked_at.add(run)

    def _opened(self, run: str, invitation: Invitation) -> Opened:
        consent = check_consent(self._settings, invitation)
        system = system_named(invitation.system)
        config = system.configure(invitation.config)
        most = cost_of(config.num_rounds, system.result.spends(None, config))
        return Opened(run, _now(), system.name, shown_to_parties(config), consent, most)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
