"""The folder of a live run: what is needed to go on, and its model as a run, for `recommend` and `serve`.

`live.npz` is all that is needed to go on; no other run has it. The model is written to `fold-1` and `fold-2` in
turns; `run.json`, written last, says which of them is whole. One process at a time works on a folder.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from hushrec.data import Interactions, Owners
from hushrec.data.checking import checked, without_duplicates
from hushrec.data.interactions import Ids
from hushrec.data.row_order import count_starts
from hushrec.errors import HushrecError
from hushrec.files import make_private_folder
from hushrec.protocol import Numbers, result_arrays
from hushrec.runs.folds import planned_run
from hushrec.runs.record import FoldResult, alone_in, read_run, write_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.checkpoint import (
    Progress,
    digest,
    read_arrays,
    save_progress,
    save_train,
    write_arrays,
)
from hushrec.runtime.training import Job
from hushrec.settings import to_dict
from hushrec.systems.drift.live import Live

_STATE = "live.npz"


def is_live(folder: Path) -> bool:
    """Whether it is the folder of a live run."""
    return (folder / _STATE).exists()


@contextmanager
def open_folder(folder: Path, live: Live, seed: int, resume: bool) -> Iterator[None]:
    """Begin in a new folder, or go on from one with the same settings; no other process can until the end."""
    if folder.exists() and not folder.is_dir():
        raise HushrecError(f"{folder} is a file; choose a folder for --out")
    is_other = not is_live(folder) and folder.exists()
    if is_other and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise HushrecError(f"{folder} holds something that is not a live run; choose an empty or new --out")
    _make(folder)
    with alone_in(folder):
        if is_live(folder) and not resume:
            raise HushrecError(
                f"{folder} holds a live run; add --resume to go on with it, or choose another --out"
            )
        if is_live(folder):
            _go_on(folder, live, seed)
        yield


def _make(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except OSError as error:
        raise HushrecError(f"{folder} cannot be written ({error.strerror}); choose another --out") from None


def _go_on(folder: Path, live: Live, seed: int) -> None:
    arrays, given = read_arrays(folder / _STATE), live.given
    try:
        if arrays["settings"].tobytes() != _settings(live, seed):
            raise HushrecError(f"{folder} holds a live run with other settings; give the same, or another --out")
        live.restore(arrays)
    except (KeyError, ValueError, IndexError):
        raise HushrecError(f"{folder / _STATE} is damaged; delete its folder and run again") from None
    if given not in (b"", live.given):
        raise HushrecError(
            f"{folder} began with other owners or items; give the same --owners and --data, or leave both out"
        )


def _settings(live: Live, seed: int) -> bytes:
    return repr((live.system.name, seed, sorted(to_dict(live.config).items()))).encode()


def keep(folder: Path, live: Live, seed: int) -> None:
    """Write where the run is; a kill in the middle of it leaves what was kept before."""
    settings = np.frombuffer(_settings(live, seed), np.uint8)
    write_arrays(folder / _STATE, live.arrays() | {"settings": settings})
    train, users, items = _learned_from(live)
    if len(train):
        _keep_model(folder, live, seed, train, users, items)


def _learned_from(live: Live) -> tuple[Interactions, Numbers, Numbers]:
    """The events about items that somebody holds, the last of each pair; and users and items in order of ids."""
    users, items, is_positive = live.history.columns()
    # Others came after the last round.
    held = live.held[live.held < len(live.state.item_factors)]
    is_held = np.isin(items, held) & (users < len(live.state.user_factors))
    users, items, is_positive = users[is_held], items[is_held], is_positive[is_held]
    user_ids, user_order = _sorted_ids(live.users.texts, np.unique(users))
    item_ids, item_order = _sorted_ids(live.items.texts, held)
    titles = np.array([live.titles.get(item, "") for item in item_ids.tolist()], np.str_)
    place_of_item = _places(item_order, len(live.items.texts))
    draft = Interactions(
        _places(user_order, len(live.users.texts))[users], place_of_item[items], is_positive.astype(np.float32),
        None, None, user_ids, item_ids, titles,
        (0.0, 1.0), "live", "", False, holding=_owners(live, held, place_of_item),
    )  # fmt: skip
    return checked(without_duplicates(draft, "last")), user_order, item_order


def _owners(live: Live, held: Numbers, place_of_item: Numbers) -> Owners:
    """Those owners that hold something."""
    owners = [(owner, np.intersect1d(owner.held, held)) for owner in live.members.owners]
    owners = [(owner, items) for owner, items in owners if len(items)]
    items = place_of_item[np.concatenate([np.empty(0, np.int32), *(items for _, items in owners)])]
    numbers = np.repeat(np.arange(len(owners), dtype=np.int32), [len(items) for _, items in owners])
    names = tuple(live.owners.texts[owner.number] for owner, _ in owners)
    return Owners(names, count_starts(items, len(held)), numbers[np.argsort(items, kind="stable")])


def _sorted_ids(texts: list[str], numbers: Numbers) -> tuple[Ids, Numbers]:
    """Ids in order, as datasets have them, and the numbers that they have here."""
    ids = np.array([texts[number] for number in numbers.tolist()], np.str_)
    order = np.argsort(ids, kind="stable")
    return ids[order], numbers[order]


def _places(numbers: Numbers, size: int) -> Numbers:
    places = np.full(size, -1, np.int32)
    places[numbers] = np.arange(len(numbers))
    return places


def _keep_model(folder: Path, live: Live, seed: int, train: Interactions, users: Numbers, items: Numbers) -> None:
    job = Job(live.system, live.config, seed, train)
    start = job.start()
    state = replace(
        start.state,
        user_factors=live.state.user_factors[users],
        item_factors=live.state.item_factors[items],
        is_held=np.ones(len(items), np.bool_),
    )
    progress = Progress(state, start.private, live.transcript, live.round_number, live.cpu_seconds)
    fold = 1
    if (folder / "run.json").exists():
        fold = 2 if read_run(folder).folds[0].fold == 1 else 1
    save_train(folder / f"fold-{fold}" / "train.npz", train, live.system)
    save_progress(folder / f"fold-{fold}" / "state.npz", live.system, progress)
    plan = planned_run(live.system, live.config, train, RunSettings(seed=seed, min_raters=None))
    facts = live.system.result.facts(live.members, live.config)
    model_sha256 = digest(result_arrays(state))
    result = FoldResult.of(
        fold, live.system, progress, model_sha256=model_sha256, num_train=len(train), num_cold=0, facts=facts
    )
    write_run(folder, replace(plan, folds=[result]))
