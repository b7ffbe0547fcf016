"""Runs for Weights & Biases, offline: files that `wandb sync` sends when somebody says so, and nothing before."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from hushrec.handover.public import Told
from hushrec.handover.tracking import PROJECT, Ending

# Before it is loaded: no word to its makers on errors.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")


class WeightsAndBiases:
    """The run of one tracker."""

    def __init__(self, place: str | None) -> None:
        """`place`: the folder in which W&B makes its own, `wandb`."""
        import wandb

        self._wandb = wandb
        self._root = Path(place or ".").absolute()
        self.place = str(self._root / "wandb")
        self._run: Any = None

    def begin(self, known: str | None, name: str, settings: Mapping[str, Told]) -> str:
        """Open a run offline; one that goes on has the same id, and is one run when it is sent."""
        self._root.mkdir(parents=True, exist_ok=True)
        number = known or uuid4().hex[:8]
        self._run = self._wandb.init(
            project=PROJECT,
            id=number,
            name=name or None,
            dir=str(self._root),
            config=dict(settings),
            mode="offline",
            resume="allow",
            reinit="create_new",
            # The command with its paths, the machine, its user and its code are nobody's business.
            settings=self._wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, save_code=False,
                x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True,
                host="", username="", program="", email="",
            ),
        )  # fmt: skip
        self._run.define_metric("round")
        self._run.define_metric("*", step_metric="round")
        return number

    def tell(self, step: int, values: Mapping[str, float], order: int) -> None:
        """One row. W&B keeps rows whose steps rise, and its server drops those that it has."""
        self._run.log({**values, "round": step}, step=order)

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: Ending) -> None:
        """Results and digests as the summary of the run."""
        self._run.summary.update({**values, **digests})
        self._run.finish(exit_code=0 if ending == "done" else 1)
