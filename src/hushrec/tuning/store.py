"""Where trials are kept: a study of Optuna, in memory or in a folder's SQLite file. Nothing of it is pickled."""

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hushrec.errors import HushrecError, MissingExtraError, how_to_install, option
from hushrec.files import make_private_folder
from hushrec.runs.record import alone_in

if TYPE_CHECKING:
    import optuna

STUDY = "study.db"
_NEW = "study.new"  # until it is whole
_NAME = "hushrec"
_PLAN = "plan"

Direction = Literal["minimize", "maximize"]


def need_optuna() -> None:
    """Refuse to tune without Optuna."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError(f"tune needs Optuna; install it with: {how_to_install('tune')}") from None
    assert optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Have Optuna and its database print nothing, and leave their settings as they were.

    SQLAlchemy logs the traceback of a Ctrl-C that comes while it puts a connection back. What fails, it raises.
    """
    import optuna

    before, database = optuna.logging.get_verbosity(), logging.getLogger("sqlalchemy")
    silent, was_passed_on = logging.NullHandler(), database.propagate
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    database.addHandler(silent)
    database.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        database.removeHandler(silent)
        database.propagate = was_passed_on
        optuna.logging.set_verbosity(before)


@contextmanager
def opened(
    folder: Path | None, resume: bool, plan: Mapping[str, Any], directions: list[Direction], pruner: Any
) -> Iterator["optuna.Study"]:
    """The study of a plan: a new one, or that of a folder if it is to be gone on with."""
    import optuna

    if folder is None:
        with quiet():
            yield optuna.create_study(directions=directions, pruner=pruner)
        return
    path = folder / STUDY
    _check_folder(folder, resume)
    with quiet(), alone_in(folder), _told(path):
        is_new = not path.exists()
        if is_new:
            _make(folder, plan, directions)
        with _storage(path) as storage:
            study = optuna.load_study(study_name=_NAME, storage=storage, pruner=pruner)
            _check_same(study.user_attrs.get(_PLAN, {}), plan, folder)
            try:
                yield study
            except HushrecError:
                if is_new and not any(trial.state.is_finished() for trial in study.trials):
                    path.unlink()  # nothing was found, and what was asked for is impossible
                raise


def _check_folder(folder: Path, resume: bool) -> None:
    """Make the folder, unless it holds what must not be lost."""
    if folder.exists() and not folder.is_dir():
        raise HushrecError(f"{folder} is a file; choose a folder for {option('out')}")
    if (folder / STUDY).exists():
        if not resume:
            raise HushrecError(
                f"{folder} holds trials already; add {option('resume', True)} to go on with them, or choose "
                f"another {option('out')}"
            )
    elif folder.exists() and any(not path.name.startswith((".", _NEW)) for path in folder.iterdir()):
        raise HushrecError(f"{folder} holds something else than trials; choose an empty or new {option('out')}")
    try:
        make_private_folder(folder)
    except OSError as error:
        raise HushrecError(f"{folder} cannot be made ({error.strerror}); choose another {option('out')}") from None


def _make(folder: Path, plan: Mapping[str, Any], directions: list[Direction]) -> None:
    """Write a new study; a command that is killed meanwhile leaves none, not half of one."""
    import optuna

    new = folder / _NEW
    new.unlink(missing_ok=True)
    with _storage(new) as storage:
        study = optuna.create_study(study_name=_NAME, storage=storage, directions=directions)
        study.set_user_attr(_PLAN, dict(plan))
    new.chmod(0o600)
    os.replace(new, folder / STUDY)


@contextmanager
def _storage(path: Path) -> Iterator["optuna.storages.RDBStorage"]:
    import optuna
    from sqlalchemy.pool import NullPool

    # Without a pool no connection stays open, not even that of a file which turns out to be damaged.
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"poolclass": NullPool})
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say in one line that a file of trials cannot be used."""
    import optuna
    import sqlalchemy

    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, KeyError) as error:
        if isinstance(error, KeyError) and error.args != ("Record does not exist.",):
            raise
        raise HushrecError(
            f"{path} cannot be used: it is damaged, or its disk is full; free some space, or choose another "
            f"{option('out')}"
        ) from None


def _check_same(kept: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> None:
    """Refuse to mix trials that cannot be compared."""
    asked = json.loads(json.dumps(plan))
    different = [name for name in asked if asked[name] != kept.get(name)]
    if different:
        other = ", ".join(different)
        raise HushrecError(f"{folder} holds trials with other {other}; choose another {option('out')}")
