"""What DRIFT's threshold protects: audits of one epoch each, side by side, for both readings of Algorithm 2.

Read literally, blocks without a pair count towards the threshold. They move nothing, and the orchestrator sees
that: what is learned from in such a group is of fewer users than it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushrec.audit.attacks import attacks_on
from hushrec.audit.driver import OnLook, audit
from hushrec.audit.requests import answered, asked_for
from hushrec.audit.scoreboard import Attack
from hushrec.protocol import AnySystem, Role, View
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job

_ALL = 0.9995  # as printed: 100.0%
_CERTAIN = 0.95  # of guesses that are right, to say that nothing is hidden


@dataclass(frozen=True)
class ThresholdRow:
    """What one way to set the threshold leaves open."""

    theta: int
    threshold: str
    num_groups: int
    users_per_group: float
    one_user_share: float  # of groups
    one_moved_share: float  # of groups: those in which at most one user's vector moves, so that it alone has pairs
    scores: dict[str, float]  # by attack of the orchestrator; without those that had nothing to guess
    chances: dict[str, float]
    blocks: str = "pairs"  # how Algorithm 2 is read


def attacks_of_orchestrator(system: AnySystem) -> list[Attack[Any]]:
    """The attacks that the threshold is there to stop."""
    return [attack for attack in attacks_on(system) if attack.role == Role.ORCHESTRATOR]


def audit_threshold(
    job: Job, theta: int, threshold: str, options: RuntimeOptions, on_look: OnLook, blocks: str = "pairs"
) -> ThresholdRow:
    """Train for one epoch with this threshold, and attack."""
    job = replace(job, config=replace(job.config, epochs=1, theta=theta, threshold=threshold, blocks=blocks))
    users_of_groups: list[int] = []
    moved_of_groups: list[int] = []

    def count(progress: Progress, scores: Mapping[str, float]) -> None:
        users, moved = _users_of_groups(progress.transcript.seen_by(Role.ORCHESTRATOR))
        users_of_groups.extend(users)
        moved_of_groups.extend(moved)
        on_look(progress, scores)

    findings = audit(job, options, count, attacks_of_orchestrator(job.system)).findings
    num_groups = len(users_of_groups)
    return ThresholdRow(
        theta, threshold, num_groups, sum(users_of_groups) / max(num_groups, 1),
        users_of_groups.count(1) / max(num_groups, 1),
        sum(moved <= 1 for moved in moved_of_groups) / max(num_groups, 1),
        {finding.attack.name: finding.score for finding in findings},
        {finding.attack.name: finding.chance for finding in findings},
        blocks,
    )  # fmt: skip


def _users_of_groups(view: View) -> tuple[list[int], list[int]]:
    """How many users each group has, and how many of them have vectors that move."""
    asked = asked_for(view)
    _, gradients = answered(view, asked)
    is_moved = ~asked.is_item & gradients.any(axis=1) if len(asked.groups) else np.zeros(0, np.bool_)
    moved = np.bincount(asked.groups[is_moved], minlength=len(asked.num_users))
    return asked.num_users.tolist(), moved.tolist()


def conclusion(rows: list[ThresholdRow]) -> str:
    """What the threshold protects, in one sentence made of the numbers."""
    some = [row.scores for row in rows if row.num_groups]
    if not some:
        return "No owner completed enough blocks to learn from them: nothing was asked for, and nothing learned."
    watched, fitted = ([scores[name] for scores in some] for name in ("request watching", "gradient direction"))
    share = "all" if min(fitted) > _ALL else f"at least {min(fitted):.1%}"
    said = (
        f"Who only watches requests is right for {min(watched):.1%} to {max(watched):.1%} of the guesses, who "
        f"reads gradients for {share}: "
    )
    if min(fitted) < _CERTAIN:
        return said + "gradients alone do not name every user here, which is no proof that nothing else does."
    return said + (
        "a higher threshold blurs requests, but hides almost no interaction that is learned from: the "
        "orchestrator gets a gradient for each item and knows every user's vector."
    )
