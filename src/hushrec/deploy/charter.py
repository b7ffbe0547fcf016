"""A run's charter: what all nodes agree on before the first round, signed by each of them over the same digest.

A server could tell each node something else: other hosts, keys of its own, other items, settings, denoisers. So
each node writes down what it was told, in one canonical form, and signs its digest. It answers nothing before it
has seen the signatures of all other hosts under the same digest, and from then on refuses whatever differs.

A run can begin again before all have signed, if a node is lost just then. A nonce keeps the server from making use
of that: each node gives a fresh one whenever its numbers are assigned, until it has agreed, and signs and agrees
only to a charter that has its latest. If a node agreed to one charter and another one to a different one, each
would have signed the other's, hence before it gave the nonce of its own; but each of the two is signed after all
its nonces were given. So there is at most one charter of a run that anybody agrees to.

Not in it: who is away at the moment. The server may drop whom it likes (`docs/trust.md`).
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np

from hushrec.deploy.enrolment import numbers_digest
from hushrec.deploy.orders import Hosts, Invitation
from hushrec.draws import Draws
from hushrec.errors import PublicError
from hushrec.privacy.sealing import is_signed, sign
from hushrec.protocol import AnySystem
from hushrec.runtime.guard import Limits, longest_vector

_CONTEXT = b"hushrec charter v1"
_MOST_NAMED = 5  # differences that are told


class CharterError(PublicError):
    """What was told differs from what was agreed on, or was not agreed on by all."""


class Member(msgspec.Struct, frozen=True):
    """A node in the charter."""

    name: str
    mail_key: bytes
    signing_key: bytes
    nonce: bytes
    numbers_sha256: bytes  # of its parties
    parties: list[str]  # their names, if they have some
    pledges: list[bytes]  # what they are bound to, if the system has them bound


class Charter(msgspec.Struct, frozen=True):
    """What all nodes agree on."""

    run_id: bytes
    system: str
    settings: dict[str, Any]
    seed: int | None
    num_rounds: int
    catalogue_sha256: bytes
    num_items: int
    rating_range: tuple[float, float] | None
    relay: str
    pad_bytes: int
    num_clients: int
    members: list[Member]
    appointed: dict[str, list[int]]  # who may be asked in a role

    def digest(self) -> bytes:
        """SHA-256 of the canonical form."""
        return sha256(msgspec.msgpack.encode(self, order="deterministic")).digest()

    def limits(self, min_writers: int) -> Limits:
        """What follows for a node's guard."""
        appointed = {role: np.array(numbers, np.int32) for role, numbers in self.appointed.items()}
        return Limits(self.num_rounds, appointed, longest_vector(self.rating_range), min_writers)


class Signature(msgspec.Struct, frozen=True):
    """From a node: that it was told the charter with this digest."""

    digest: bytes
    signature: bytes


class Agreement(msgspec.Struct, frozen=True):
    """To a node: the signatures of all hosts, by name."""

    signatures: dict[str, bytes]


class Agreed(msgspec.Struct, frozen=True):
    """What a node keeps: the charter, and the proof that all hosts were told the same."""

    charter: Charter
    signatures: dict[str, bytes]


def charter_of(run_id: bytes, system: AnySystem, invitation: Invitation, hosts: Hosts) -> Charter:
    """What a node was told, as a charter."""
    catalogue = msgspec.msgpack.encode(invitation.catalogue, order="deterministic")
    members = [
        Member(
            host.card.name, host.card.public_key, host.card.signing_key, host.card.nonce,
            numbers_digest(host.numbers), host.names, list(host.card.pledges),
        )
        for host in hosts.hosts
    ]  # fmt: skip
    return Charter(
        run_id, system.name, invitation.config, invitation.seed, system.configure(invitation.config).num_rounds,
        sha256(catalogue).digest(), len(invitation.catalogue.ids), invitation.rating_range, invitation.relay,
        hosts.pad_bytes, hosts.num_clients, sorted(members, key=lambda member: member.name), hosts.appointed,
    )  # fmt: skip


def pledges_of(system: AnySystem, hosts: Hosts) -> dict[int, bytes]:
    """What each party is bound to, by its number; refused if one of a host is missing, or one too many there."""
    if any(len(host.card.pledges) != (len(host.numbers) if system.pledges else 0) for host in hosts.hosts):
        raise CharterError(f"a host has not one pledge for each of its parties, as {system.name} wants it")
    return {
        number: pledge
        for host in hosts.hosts
        for number, pledge in zip(host.numbers, host.card.pledges, strict=False)
    }


def appointed_by(system: AnySystem, num_clients: int, config: Any, draws: Draws) -> dict[str, list[int]]:
    """Who may be asked in which role, for a charter."""
    if system.appoints is None:
        return {}
    return {role.value: numbers.tolist() for role, numbers in system.appoints(num_clients, config, draws).items()}


def check_appointed(charter: Charter, system: AnySystem, config: Any, min_writers: int) -> None:
    """Refuse a charter that appoints more than the system does: in the end everybody would be a denoiser."""
    usual = appointed_by(system, charter.num_clients, config, Draws(0))
    for role, numbers in charter.appointed.items():
        is_known = role in usual and numbers == sorted(set(numbers)) and len(numbers) <= len(usual[role])
        if not is_known or (numbers and numbers[-1] >= charter.num_clients):
            raise CharterError(f"more clients are appointed as {role} than {charter.system} has")
    if usual.keys() - charter.appointed.keys():
        raise CharterError(f"nobody is appointed as {', '.join(sorted(usual.keys() - charter.appointed.keys()))}")
    if getattr(config, "shares", 0):
        return  # where denoisers count letters themselves, and some of them rest
    num_denoisers = getattr(config, "denoisers", 0)
    num_ordinary = charter.num_clients - num_denoisers
    if num_denoisers and num_ordinary < min_writers * num_denoisers:
        raise CharterError(
            f"{num_denoisers} denoisers for {charter.num_clients} clients get the noise of fewer than "
            f"{min_writers} each, and this node's would not answer; use at most "
            f"{charter.num_clients // (min_writers + 1)}"
        )


def sign_charter(charter: Charter, name: str, signing_key: bytes) -> Signature:
    """A node's signature of what it was told."""
    digest = charter.digest()
    return Signature(digest, sign(_content(digest, name), signing_key))


def check_signatures(charter: Charter, signatures: Mapping[str, bytes]) -> None:
    """Refuse a charter that not every host has signed."""
    digest = charter.digest()
    for member in charter.members:
        if not is_signed_by(member, digest, signatures.get(member.name, b"")):
            raise CharterError(
                f"{member.name[:64]} did not sign the charter that this node was told; refuse the run"
            )


def is_signed_by(member: Member, digest: bytes, signature: bytes) -> bool:
    """Whether a host has signed the charter with this digest."""
    return is_signed(signature, _content(digest, member.name), member.signing_key)


def check_same(agreed: Charter, told: Charter) -> None:
    """Refuse what differs from what was agreed on, and say what does."""
    if told.digest() != agreed.digest():
        different = ", ".join(differences(agreed, told)[:_MOST_NAMED])
        raise CharterError(f"told otherwise than all nodes have signed: {different}; order a new run")


def differences(agreed: Charter, told: Charter) -> list[str]:
    """What two charters do not have in common, in words."""
    found = [
        name.replace("_sha256", "").replace("_", " ")
        for name in Charter.__struct_fields__
        if name not in ("members", "settings") and getattr(agreed, name) != getattr(told, name)
    ]
    settings = agreed.settings.keys() | told.settings.keys()
    found += [
        f"setting {name}" for name in sorted(settings) if agreed.settings.get(name) != told.settings.get(name)
    ]
    return found + _different_members(agreed.members, told.members)


def _different_members(agreed: Sequence[Member], told: Sequence[Member]) -> list[str]:
    before, now = ({member.name: member for member in members} for members in (agreed, told))
    found = []
    for name in sorted(before.keys() | now.keys()):
        if name not in before or name not in now:
            found.append(f"host {name}")
            continue
        columns = [column for column in Member.__struct_fields__ if column != "name"]
        different = [column for column in columns if getattr(before[name], column) != getattr(now[name], column)]
        found += [f"{column.replace('_sha256', '').replace('_', ' ')} of {name}" for column in different]
    return found


def _content(digest: bytes, name: str) -> bytes:
    return _CONTEXT + digest + name.encode(errors="surrogatepass")
