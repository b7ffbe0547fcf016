"""A model card, in Markdown: what was trained, on how many people, what it reveals, how to make it again.

Nothing in it is of one person, and no file is named.
"""

from collections.abc import Iterable, Iterator, Sequence

from hushrec.audit.kept import KeptAudit, KeptFinding
from hushrec.deploy.consent import verdict_on
from hushrec.errors import MissingExtraError
from hushrec.handover.public import OWN_DATA, public_command, public_data, python_of
from hushrec.protocol import AnySystem, Spending
from hushrec.protocol.declared import reveals, threat_model
from hushrec.registry import system_named
from hushrec.runs.record import FoldResult, Run
from hushrec.settings import to_dict

_GROUPS = ("warm", "cold")
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def card_of(run: Run, audit: KeptAudit | None = None) -> str:
    """The card of a run; with what attacks on it found, if it was audited."""
    system = system_named(run.system)
    sections: dict[str, Iterable[str]] = {
        "What was trained": _training(run, system),
        "Accuracy": _accuracy(run),
        "What it reveals, and to whom": [*_verdict(run, system), *_messages(run, system)],
        "What attacks read": _leakage(audit),
        "Noise": _noise(run, system),
        "What was sent": _sent(run),
        "Settings": [f"- `{name}`: {value}" for name, value in run.config.items()],
        "Make it again": _again(run, system),
    }
    parts = [f"# Model card: {run.system} on {public_data(run)}", "", f"{system.about.title}.", ""]
    for heading, lines in sections.items():
        parts += [f"## {heading}", "", *lines, ""]
    return "\n".join(parts)


# --- What was trained ---------------------------------------------------------------------------------------


def _training(run: Run, system: AnySystem) -> Iterator[str]:
    made, paper = run.provenance, system.about.paper
    where = "a simulation of all parties in one process" if run.party == "all" else f"kept by a {run.party}"
    owner = " (its owner's, so that it is not named here)" if public_data(run) == OWN_DATA else ""
    synthetic = " It was made by a generator: no person is in it." if made.is_synthetic else ""
    counts = f"{made.num_users:,} people, {made.num_items:,} items, {made.num_ratings:,} rows"
    yield f"- System: {run.system}, after {paper.authors}: {paper.title}. {paper.venue}, {paper.year}."
    yield f"- Data: {public_data(run)}{owner}: {counts}.{synthetic}"
    if made.num_parties and made.num_parties != made.num_users:
        yield f"- Parties: {made.num_parties:,} {made.party}s."
    yield f"- Trained: {_rounds(run)}, seed {run.seed}, {where}; begun {made.started}, hushrec {_version(run)}."
    for fold in run.folds:
        of_fold = f" of fold {fold.fold}" if len(run.folds) > 1 else ""
        yield f"- Digest of the model{of_fold}: `{fold.model_sha256}`."


def _version(run: Run) -> str:
    return run.provenance.versions.get("hushrec", "of an unknown version")


def _rounds(run: Run) -> str:
    numbers = sorted({fold.num_rounds for fold in run.folds})
    told = "no finished fold" if not numbers else f"{' or '.join(map(str, numbers))} rounds"
    return f"{told} in each of {len(run.folds)} folds" if len(run.folds) > 1 else told


# --- Accuracy -----------------------------------------------------------------------------------------------


def _accuracy(run: Run) -> Iterator[str]:
    if not run.mean:
        yield "Not measured: it was fitted to all rows, or nobody has both the model and test rows."
        return
    part = "a validation part" if run.provenance.measure == "validation" else "test rows"
    yield f"On {part} of the split `{run.provenance.split}`, which were not trained on:"
    yield ""
    several = len(run.folds) > 1
    yield from _table(
        ("metric", *(("mean", "deviation over folds") if several else ("value",)), *_GROUPS),
        ([name, f"{run.mean[name]:.4f}", *([f"{run.std[name]:.4f}"] if several else []), *_of_groups(run, name)]
         for name in run.mean if not _is_of_group(name)),
    )  # fmt: skip
    yield ""
    cold = [fold.num_cold for fold in run.folds if fold.num_cold is not None]
    if cold:
        tests = sum(fold.num_test for fold in run.folds)
        yield f"Cold: {sum(cold):,} of {tests:,} test rows have a user or an item without a training row."
    if run.baselines:
        yield ""
        names = [name for name in run.mean if any(name in values for values in run.baselines.values())][:3]
        rows = ([one, *(_metric(values.get(name)) for name in names)] for one, values in run.baselines.items())
        yield from _table(("centralised baseline", *names), rows)


def _is_of_group(name: str) -> bool:
    return name.rpartition(", ")[2] in _GROUPS and ", " in name


def _of_groups(run: Run, name: str) -> list[str]:
    return [_metric(run.mean.get(f"{name}, {group}")) for group in _GROUPS]


def _metric(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


# --- What it reveals ----------------------------------------------------------------------------------------


def _verdict(run: Run, system: AnySystem) -> Iterator[str]:
    config = system.configure(run.config)
    verdict = verdict_on(system, config)
    word = "protected by what audits found" if verdict.is_protected else "exposed"
    yield f"With these settings: **{word}**. {verdict.words[:1].upper()}{verdict.words[1:]}."
    for line in system.result.warnings(config):
        yield f"- {line}"
    yield ""
    threat = threat_model(system)
    if threat:
        yield f"Threat model: {threat}"
        yield ""


def _messages(run: Run, system: AnySystem) -> Iterator[str]:
    sent = {count.type: count.bytes for count in run.folds[0].messages} if run.folds else {}
    kinds = [kind for kind in system.messages if sent.get(kind.__name__)]
    if not kinds:
        yield "No message was sent."
        return
    rows = (
        [kind.__name__, f"{kind.sender} to {kind.receiver}", _bytes(sent[kind.__name__]), reveals(kind)]
        for kind in kinds
    )
    yield from _table(("message", "way", "sent", "what it tells"), rows)


def _leakage(audit: KeptAudit | None) -> Iterator[str]:
    if audit is None:
        yield "Not audited. `hushrec audit RUN` makes all attacks that apply, and keeps what they find."
        return
    if not audit.findings:
        yield "No attack applies to its messages. That is no proof that they reveal nothing."
        return
    yield f"Audited on {audit.date}, {audit.num_rounds} rounds. A score of 1 is all, the blind guess saw nothing:"
    yield ""
    yield from _table(("attack", "by", "measure", "score", "blind guess", "so"), map(_finding_row, audit.findings))


def _finding_row(one: KeptFinding) -> list[str]:
    return [one.name, one.role, one.measure, f"{one.score:.4f}", f"{one.chance:.4f}", one.in_words]


# --- Noise, bytes, the command ------------------------------------------------------------------------------


def _noise(run: Run, system: AnySystem) -> Iterator[str]:
    try:
        spent = system.result.spends(None, system.configure(run.config))
    except MissingExtraError as error:
        yield f"Its epsilon cannot be computed here: {error}."
        return
    told = {name: value for fold in run.folds[:1] for name, value in fold.facts.items() if _is_of_ledger(name)}
    if spent is None and not told:
        yield "None: no epsilon bounds what the messages tell."
        return
    if spent is not None:
        yield _spending(spent)
        yield ""
    if told:
        yield "The ledger of the run:"
        yield ""
        yield from (f"- {name}: {value:g}" for name, value in told.items())


def _is_of_ledger(name: str) -> bool:
    return "epsilon" in name or name.startswith("releases ")


def _spending(spent: Spending) -> str:
    return f"Epsilon {spent.epsilon:.4g} at delta {spent.delta:g} for one {spent.unit} in the whole run, at most."


def _sent(run: Run) -> Iterator[str]:
    for fold in run.folds[:1]:
        rows = ([way, _bytes(total), _bytes(_each(total, fold, run))] for way, total in fold.sent_bytes.items())
        yield from _table(("way", f"fold {fold.fold}", f"per {run.party_name} and round"), rows)
    if not run.folds:
        yield "Nothing yet."


def _each(total: float, fold: FoldResult, run: Run) -> float:
    return total / max(fold.num_rounds, 1) / max(run.num_parties, 1)


def _bytes(number: float) -> str:
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:#.3g} {unit}".replace(". ", " ")
    return f"{number:.0f} B"


def _again(run: Run, system: AnySystem) -> list[str]:
    if run.command:
        command = public_command(run)
        is_masked = command != run.command
        after = ["", "Words in capitals stand for files that are not named here."] if is_masked else []
        return ["```", command, "```", *after]
    usual = to_dict(system.configure({}))
    return ["```python", python_of(run, system.about.class_name, usual), "```"]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
