"""What can be said in words about several runs: computed from them, never assumed."""

from collections.abc import Sequence
from typing import Literal

from hushrec.registry import system_named
from hushrec.report.numbers import format_bytes, format_count, format_metric, format_spread
from hushrec.report.tables import (
    DRIVING_ROLES,
    MetricRow,
    are_counted_together,
    is_error,
    labels,
    main_metric,
    metric_rows,
    up_and_down,
)
from hushrec.runs.record import Run

Likeness = Literal["identical", "same model", "different", "incomparable"]


def likeness(one: Run, other: Run) -> Likeness:
    """How the results of two runs compare, by the digests of all folds that both have.

    identical: the driving side's arrays and all clients' agree to the last bit. same model: the driving side's
    do, and the clients' are not known. incomparable: no fold in common, or digests of other arrays.
    """
    pairs = [(a, b) for a in one.folds for b in other.folds if a.fold == b.fold]
    if not pairs or any(set(a.digested) != set(b.digested) for a, b in pairs if a.digested and b.digested):
        return "incomparable"
    if any(a.model_sha256 != b.model_sha256 for a, b in pairs):
        return "different"
    clients = [(a.clients_sha256, b.clients_sha256) for a, b in pairs]
    if any(None not in pair and pair[0] != pair[1] for pair in clients):
        return "different"
    has_none = all(run.party == "all" for run in (one, other)) and all(pair == (None, None) for pair in clients)
    return "identical" if has_none or all(None not in pair for pair in clients) else "same model"


def same_as(runs: Sequence[Run]) -> list[list[int]]:
    """For every run, the places of the others that end with the same model, bit for bit."""
    return [
        [
            place
            for place, other in enumerate(runs)
            if other is not run and likeness(run, other) in ("identical", "same model")
        ]
        for run in runs
    ]


def summary(runs: Sequence[Run]) -> list[str]:
    """The main results, a sentence or two each. Only runs with a finished fold."""
    names = labels(runs, " with ")
    return [
        _what_was_run(runs),
        *_identities(runs, names),
        *_accuracy(runs, names),
        *_cost(runs, names),
        *_beside_papers(metric_rows(runs), names),
    ]


def _what_was_run(runs: Sequence[Run]) -> str:
    systems = len({run.system for run in runs})
    first = runs[0].provenance
    if len({run.provenance.data_sha256 for run in runs}) == 1:
        where = (
            f"{runs[0].data}: {format_count(first.num_users)} users, {format_count(first.num_items)} items, "
            f"{format_count(first.num_ratings)} ratings"
        )
    else:
        where = ", ".join(dict.fromkeys(run.data for run in runs))
    made = (
        " The data is synthetic: made up by a generator." if all(r.provenance.is_synthetic for r in runs) else ""
    )
    return f"{_number(len(runs), 'run')} of {_number(systems, 'system')} on {where}.{made}"


def _number(count: int, noun: str) -> str:
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    word = words[count] if count < len(words) else str(count)
    is_start = noun == "run"
    return f"{word if is_start else word.lower()} {noun}{'' if count == 1 else 's'}"


def _identities(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    told: set[int] = set()
    sentences = []
    for place, run in enumerate(runs):
        if place in told:
            continue
        same = {
            kind: [later for later in range(place + 1, len(runs)) if likeness(run, runs[later]) == kind]
            for kind in ("identical", "same model")
        }
        for kind, places in same.items():
            told.update(places)
            if places:
                sentences.append(
                    _identity(
                        [names[one] for one in places], names[place], kind, [run, *(runs[one] for one in places)]
                    )
                )
    kinds = [likeness(a, b) for number, a in enumerate(runs) for b in runs[number + 1 :]]
    if "different" in kinds and not told:
        sentences.append("No two of these runs end with the same model.")
    return sentences + _equal_metrics(runs, names)


def _identity(others: list[str], first: str, kind: str, runs: Sequence[Run]) -> str:
    common = set.intersection(*({fold.fold for fold in run.folds} for run in runs))
    where = {0: "in all folds in common", 1: "in the fold that was run", 2: "in both folds"}.get(
        len(common), f"in all {len(common)} folds"
    )
    if any(len(run.folds) != len(common) for run in runs):
        where = "in all folds in common"
    messages = system_named(runs[0].system).messages
    role = next((message.sender for message in messages if message.sender in DRIVING_ROLES), "driving side")
    has_clients = kind == "identical" and runs[0].folds[0].clients_sha256 is not None
    whose = f"the {role}'s and of all clients' arrays" if has_clients else f"the {role}'s arrays"
    gives = "gives" if len(others) == 1 else "each give"
    return (
        f"{_listed(others)} {gives} the same model as {first}, bit for bit: the digests of {whose} agree {where}."
    )


def _equal_metrics(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """Systems that keep other arrays cannot be compared by digest, but by what they predict."""
    alike: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        if run.mean:
            key = repr((test_set(run), [fold.metrics for fold in run.folds]))
            alike.setdefault(key, []).append(place)
    return [
        f"{_listed([names[one] for one in places])} have the same metrics to the last digit, in every fold; they "
        "keep different arrays, so that digests cannot tell whether their models are the same."
        for places in alike.values()
        if any(likeness(runs[one], runs[other]) == "incomparable" for one in places for other in places)
    ]


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _listed(["A", "B", "C"])
    'A, B and C'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _accuracy(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    metric = main_metric(runs)
    if metric is None or len({test_set(run) for run in runs}) > 1:
        return []
    means = {name: run.mean[metric] for name, run in zip(names, runs, strict=True) if metric in run.mean}
    if len(means) < 2:
        return [f"{metric} of {name}: {format_metric(mean)}." for name, mean in means.items()]
    ordered = sorted(means.items(), key=lambda entry: entry[1], reverse=not is_error(metric))
    best, worst = format_metric(ordered[0][1]), format_metric(ordered[-1][1])
    if best == worst:
        return [f"All runs have {metric} {best}."]
    leaders = [name for name, value in means.items() if format_metric(value) == best]
    return [f"Best {metric}: {best} ({_listed(leaders)}); worst: {worst} ({ordered[-1][0]})."]


def _cost(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    if all(are_counted_together(run) for run in runs):  # of one and of many owners: only sums can be compared
        sent = [sum(sum(fold.sent_bytes.values()) for fold in run.folds) for run in runs]
        each = [f"{format_bytes(total)} with {name}" for total, name in zip(sent, names, strict=True)]
        return [f"All parties together send {_listed(each)}."]
    ups = {name: up_and_down(run)[0] for name, run in zip(names, runs, strict=True)}
    least, most = min(ups, key=lambda name: ups[name]), max(ups, key=lambda name: ups[name])
    if len(runs) == 1 or ups[least] == ups[most]:
        return [f"Per round a {runs[0].party_name} sends {format_bytes(ups[least])} on average."]
    return [
        f"Per round a {runs[0].party_name} sends {format_bytes(ups[least])} on average with {least}, and "
        f"{format_bytes(ups[most])} with {most}."
    ]


def _beside_papers(rows: Sequence[MetricRow], names: Sequence[str]) -> list[str]:
    num_known = num_within = 0
    outside = []
    for row, label in zip(rows, names, strict=True):
        for name, cell in row.cells.items():
            if cell.published is not None and cell.is_within_spread is not None:
                num_known += 1
                num_within += cell.is_within_spread
                if not cell.is_within_spread:
                    paper = format_spread(cell.published, cell.published_std)
                    outside.append(f"{name} of {label} is {format_metric(cell.mean)} against {paper}")
    if not num_known:
        return []
    start = (
        f"Of {num_known} published values for these settings, {num_within} are met within one published deviation"
    )
    return [start + (f"; {'; '.join(outside)}." if outside else ".")]


def caveats(runs: Sequence[Run]) -> list[str]:
    """What cannot be compared, a line each."""
    lines = []
    if len({run.provenance.data_sha256 for run in runs}) > 1:
        found = ", ".join(dict.fromkeys(run.data for run in runs))
        lines.append(f"the runs use different data ({found}): compare accuracy only within the same data")
    elif len({test_set(run)[:-1] for run in runs}) > 1:
        lines.append("the runs differ in seed or split, so their test sets differ: small gaps mean nothing")
    elif len({test_set(run) for run in runs}) > 1:
        lines.append("the runs have different numbers of folds: their means are over different test sets")
    lines += _about_relevance(runs)
    needed = sorted({run.provenance.min_raters or 0 for run in runs})
    if len(needed) > 1:
        numbers = ", ".join(str(number) for number in needed)
        lines.append(f"the runs list items by different numbers of raters ({numbers}): compare no rankings")
    for name, run in zip(labels(runs), runs, strict=True):
        if not run.is_done:
            done = f"{len(run.folds)} of {run.num_folds} folds"
            lines.append(f"{name}: {done} finished; finish it with: hushrec run ... --resume")
        elif run.folds and not run.mean:
            lines.append(f"{name}: fitted on all data, without a test, so it has no accuracy")
    return lines


def _about_relevance(runs: Sequence[Run]) -> list[str]:
    """Whether systems that learn from ratings and from none are measured by the same rows."""
    is_mixed = len({system_named(run.system).feedback.name for run in runs}) > 1
    tests = {tuple(fold.test_sha256 for fold in run.folds) for run in runs}
    if not is_mixed or len(tests) > 1 or not all(all(test) and test for test in tests):
        return []
    limits = sorted({run.provenance.relevance_limit for run in runs}, key=lambda limit: limit or 0.0)
    if len(limits) == 1:
        return ["all runs are tested on the same rows, and the same count as relevant: compare rankings, too"]
    told = ", ".join("all" if limit is None else f"from {limit:g} on" for limit in limits)
    return [
        f"all runs are tested on the same rows, but others count as relevant ({told}): compare no rankings; "
        "with --split shared they are the same"
    ]


def test_set(run: Run) -> tuple[object, ...]:
    """What decides which ratings a run was tested on; the folds come last."""
    kept = run.provenance
    return (
        kept.data_sha256,
        kept.split,
        kept.test_share,
        kept.split_at,
        kept.measure,
        run.seed,
        tuple(fold.fold for fold in run.folds),
    )
