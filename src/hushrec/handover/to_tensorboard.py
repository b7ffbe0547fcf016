"""Runs for TensorBoard: a folder of event files for each."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from hushrec.handover.public import Told
from hushrec.handover.tracking import Ending, KnownRounds

_USUAL = "tensorboard"


class TensorBoard:
    """The run of one tracker: settings as hyperparameters, rounds as scalars, digests as texts."""

    def __init__(self, place: str | None) -> None:
        """`place`: the folder that `tensorboard --logdir` is given."""
        self.place = str(Path(place or _USUAL).absolute())
        self._writer: Any = None
        self._known = KnownRounds()

    def begin(self, known: str | None, name: str, settings: Mapping[str, Told]) -> str:
        """A folder of its own; one that goes on gets one more file in the same."""
        folder = known or f"{name.replace(' ', '-')}-{uuid4().hex[:8]}"
        self._known = KnownRounds(None if known is None else _last_step_in(Path(self.place) / known))
        self._writer = EventFileWriter(str(Path(self.place) / folder))
        if known is None:
            self._add(hparams_pb(dict(settings), trial_id=folder))
        return folder

    def tell(self, step: int, values: Mapping[str, float], order: int) -> None:
        """Scalars of a round, on the disk at once."""
        if self._known.has(step, values):
            return
        for tag, value in values.items():
            self._add(scalar_pb(tag, value), step)
        self._writer.flush()

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: Ending) -> None:
        """Results as scalars without a course, digests as texts."""
        for tag, value in values.items():
            self._add(scalar_pb(tag, value))
        for tag, text in digests.items():
            self._add(text_pb(tag, text))
        self._add(_ended(api_pb2.STATUS_SUCCESS if ending == "done" else api_pb2.STATUS_FAILURE))
        self._writer.close()

    def _add(self, summary: Any, step: int = 0) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _last_step_in(folder: Path) -> Callable[[str], int | None]:
    """Looks up the last round that the files of a run tell of."""
    kept = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    kept.Reload()
    tags = kept.Tags()["tensors"]
    return lambda tag: max(one.step for one in kept.Tensors(tag)) if tag in tags else None


def _ended(status: Any) -> Any:
    """That a run ended, for the page of hyperparameters; what the package has for it needs TensorFlow."""
    told = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    kept = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=told))
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=kept, tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])
