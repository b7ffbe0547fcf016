"""What becomes of a run with liars among its clients: who is shown the target, and how accurate it still is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.spoiling.liars import OF_SCORES, PLANS, Liars, Lying, spoiled
from hushrec.audit.spoiling.organisations import LyingOwner, LyingPartner
from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation.top_k import top_k
from hushrec.privacy.robust_sum import lengths_of
from hushrec.protocol import AnySystem, Cohort, Handler, Numbers, Reply, Role, Scorer
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.settings import to_dict

SHARES = (0.001, 0.01, 0.05)
LENGTH = 10  # of lists
_FEW_RATERS = 5
_USUAL = 0.95  # of all honest rows are no longer than the bound
_BLOCK = 1024
_LIAR = 0  # the number of the organisation that lies


class Case(NamedTuple):
    """One run: who lies how, and what is done against it."""

    attack: str  # empty: nobody lies
    num_liars: int
    defence: str  # as it is typed; empty: none
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Spoilt:
    """A line of the table. What is None could not be measured, as the run ended; `end` says why."""

    case: Case
    exposure: float | None  # share of honest users without the target in whose lists it is
    metrics: Mapping[str, float]  # of honest users
    end: str = ""


def shares_of(text: str | None) -> tuple[float, ...]:
    """The shares of `0.001,0.01`; without a text, the usual ones."""
    if text is None:
        return SHARES
    try:
        shares = tuple(float(word) for word in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share < 0.5 for share in shares):
        raise HushrecError(f"--malicious {text}: write shares of clients between 0 and 0.5, as in 0.001,0.01,0.05")
    return shares


def organisations_of(system: AnySystem) -> Role | None:
    """Who lies where there are no clients, but a few organisations; None: there are clients."""
    senders = {message.sender for message in system.messages}
    return next((role for role in (Role.OWNER, Role.PARTNER) if role in senders), None)


def attacks_of_parties(system: AnySystem) -> tuple[str, ...]:
    """What parties of a system can do with what they send; it is an error if that is nothing."""
    if (role := organisations_of(system)) is not None:
        return ("explicit boosting", "sign flipping") if role == Role.OWNER else ("sign flipping",)
    columns = [
        {kind.name for kind in message.kinds() if kind.layout == "ragged"}
        for message in system.messages
        if message.sender == "client" and message.receiver == "server"
    ]
    if any("gradients" in names for names in columns):
        return tuple(PLANS)
    if any({"items", "scores"} <= names for names in columns):
        return OF_SCORES
    raise HushrecError(
        f"--as client: clients of {system.name} upload no rows and no scores of items that could be changed here; "
        "audit fedrec, fedrec++, sdcf, fcf, ptf-fedrec, drift or fedcore"
    )


def defences_of(system: AnySystem, bound: float, num_liars: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a system has against liars, as it is typed and as settings."""
    names = {entry.name for entry in fields(system.config)}
    yield "", {}
    if "row_norm" in names:
        yield f"--row-norm {bound:g}", {"row_norm": bound}
    for how in get_args(get_type_hints(system.config)["robust"]) if "robust" in names else ():
        settings = {"robust": how, "liars": num_liars}
        with suppress(HushrecError):  # some systems refuse some
            if how != "none" and system.configure(settings):
                yield f"--robust {how} --liars {num_liars}", settings
                if how == "held":  # which bounds where items are, not how they get there
                    yield f"--robust held --liars {num_liars} --row-norm {bound:g}", settings | {"row_norm": bound}


def cases_of(
    system: AnySystem, num_clients: int, shares: Sequence[float], attacks: Sequence[str], bound: float
) -> list[Case]:
    """Each attack by each number of liars against each defence, after the same without liars."""
    numbers = sorted({max(round(share * num_clients), 1) for share in shares})
    if organisations_of(system) is not None:
        numbers = [1]
    calm = {
        defence: Case("", 0, defence, settings)
        for number in numbers
        for defence, settings in defences_of(system, bound, number)
    }
    return [
        *calm.values(),
        *(
            Case(attack, number, defence, settings)
            for attack in attacks
            for number in numbers
            for defence, settings in defences_of(system, bound, number)
        ),
    ]


def drawn_target(train: Interactions, draws: Draws) -> int:
    """An item with few raters, drawn by the seed."""
    num_raters = np.bincount(train.items, minlength=train.num_items)
    few = np.flatnonzero((num_raters > 0) & (num_raters <= _FEW_RATERS))
    if not len(few):
        few = np.flatnonzero(num_raters == num_raters[num_raters > 0].min())
    return int(draws.generator("target").choice(few))


def usual_length(job: Job, options: RuntimeOptions) -> float:
    """The length that few honest rows exceed in any cohort, rounded up to two digits; 1 if there are no rows."""
    lengths = [0.0]

    def watched(handler: Handler[Any, Any]) -> Handler[Any, Any]:
        def answer(cohort: Cohort[Any], request: Any, config: Any, draws: Draws) -> Reply:
            reply = handler.answer(cohort, request, config, draws)
            if any(kind.name == "gradients" and kind.dtype == np.float32 for kind in reply.message.kinds()):
                rows = reply.message.column("gradients").values
                lengths.append(float(np.quantile(lengths_of(rows), _USUAL)) if len(rows) else 0.0)
            return reply

        return Handler(answer, handler.reads)

    system = replace(job.system, handlers={kind: watched(one) for kind, one in job.system.handlers.items()})
    run_job(replace(job, system=system), replace(options, threads=1))
    if not (length := max(lengths)):
        return 1.0
    step = 10.0 ** (np.floor(np.log10(length)) - 1)
    return float(f"{np.ceil(length / step) * step:.6g}")


def measure(
    job: Job, test: Interactions, case: Case, options: RuntimeOptions, on_round: Callable[[Progress], None]
) -> Spoilt:
    """Train with liars, and look at the lists of the others."""
    draws = Draws(job.seed)
    config = job.system.configure({**to_dict(job.config), **case.settings})
    target, num_users = drawn_target(job.train, draws), job.train.num_users
    # A larger share of liars has those of a smaller one.
    numbers = np.sort(draws.generator("liars").permutation(num_users)[: case.num_liars]).astype(np.int32)
    bound = float(case.settings.get("row_norm", 0.0) or to_dict(config).get("row_norm", 0.0))
    system, role = job.system, organisations_of(job.system)
    if role is not None:
        numbers = system.holders.users_of(job.train, _LIAR)  # whose lists are its own affair
    if case.attack:
        liars: Lying = Liars(numbers, case.attack, target, bound, draws)
        if role is not None:
            liars = LyingOwner(case.attack, target) if role == Role.OWNER else LyingPartner(_LIAR)
        system = spoiled(system, liars)
    job = replace(job, system=system, config=config)
    try:
        progress = run_job(job, options, on_round=on_round)
    except HushrecError as error:
        return Spoilt(case, None, {}, str(error))
    scorer, is_honest = job.scorer(progress), ~np.isin(np.arange(num_users), numbers)
    metrics = system.feedback.evaluate(scorer, job.train, test.select(is_honest[test.users]), (LENGTH,))
    return Spoilt(case, exposure(scorer, job.train, target, is_honest), metrics)


def exposure(scorer: Scorer, train: Interactions, target: int, is_honest: NDArray[np.bool_]) -> float:
    """In how many lists the target is, of honest users who do not have it."""
    has_it = np.zeros(train.num_users, np.bool_)
    has_it[train.users[train.items == target]] = True
    users = np.flatnonzero(is_honest & ~has_it).astype(np.int32)
    rows, num_lists = train.by_user(), 0
    for first in range(0, len(users), _BLOCK):
        block: Numbers = users[first : first + _BLOCK]
        lengths = rows.starts[block + 1] - rows.starts[block]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(starts[-1]) + np.repeat(rows.starts[block] - starts[:-1], lengths)
        lists, _ = top_k(scorer.score(block), LENGTH, (starts, rows.items[places]))
        num_lists += int((lists == target).any(axis=1).sum())
    return num_lists / max(len(users), 1)
