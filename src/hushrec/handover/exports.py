"""A model in files for other programs: items' vectors as Arrow or Parquet, its scorer as ONNX.

Users' vectors are private: they are written only if they are asked for, into a file for its owner alone.
"""

from collections.abc import Sequence
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from hushrec.choices import ExportForm
from hushrec.data import Interactions
from hushrec.errors import HushrecError, option
from hushrec.evaluation.formula import Formula, formula_of
from hushrec.evaluation.scoring import item_vectors_of
from hushrec.files import check_folder_to_write, write_file, write_private_file
from hushrec.handover.onnx_scorer import onnx_bytes
from hushrec.protocol import Scorer
from hushrec.runtime.checkpoint import Progress, model_digest
from hushrec.runtime.training import Job

SCORER = "scorer.onnx"


def export(
    job: Job,
    progress: Progress,
    to: Path,
    form: ExportForm | Sequence[ExportForm] = "arrow",
    with_users: bool = False,
) -> list[Path]:
    """Write the files into a folder, and say which; one that is there already is refused, and nothing written."""
    forms = checked_forms(form)
    scorer = job.scorer(progress)
    formula = formula_of(scorer)
    if formula is None and ("onnx" in forms or with_users):
        what = "users' vectors" if with_users else "ONNX"
        raise HushrecError(
            f"{job.system.name} has no scorer that is vectors and layers, so there is no {what} of it; "
            f"{_instead(scorer)}"
        )
    told = _told(job, progress, formula)
    tables = {"items": _items(job.train, scorer, formula, job.system.name)}
    if with_users and formula is not None:
        tables["users"] = _rows("user", job.train.user_ids, formula.user_vectors, formula.user_offsets)
    files: dict[str, bytes] = {}
    for one in forms:
        ending = "arrow" if one == "onnx" else one  # which items the columns of an ONNX scorer are
        files |= {f"{name}.{ending}": _written(table, told, ending) for name, table in tables.items()}
    if "onnx" in forms and formula is not None:
        files[SCORER] = onnx_bytes(formula, told)
    return _kept(files, to)


def checked_forms(form: str | Sequence[str]) -> list[ExportForm]:
    """Those that were asked for, if they are known."""
    forms: list[Any] = [form] if isinstance(form, str) else list(form)
    known = get_args(ExportForm)
    for one in forms:
        if one not in known:
            raise HushrecError(f"{option('format', one)} is unknown; choose from {', '.join(known)}")
    if not forms:
        raise HushrecError(f"name what to write, as in {option('format', 'arrow')}")
    return forms


def _instead(scorer: Scorer) -> str:
    if item_vectors_of(scorer) is None:
        return "it has no vectors of items either; hand its run's folder over as it is"
    return f"its items' vectors can be had with {option('format', 'arrow')}"


def _told(job: Job, progress: Progress, formula: Formula | None) -> dict[str, str]:
    """What stands in every file, for whoever finds it."""
    told = {"hushrec": version("hushrec"), "system": job.system.name, "rounds": str(progress.round_number)}
    if job.party != "node":
        told["model_sha256"] = model_digest(progress.state, progress.private)
    if formula is None:
        told["scores"] = "vectors say which items are alike"
    elif formula.layers or formula.product_weights is not None:
        told["scores"] = f"computed by layers: take {SCORER}"
    else:
        sides = "a user's vector . an item's"
        offsets = [" + the user's offset"] if formula.user_offsets is not None else []
        offsets += [" + the item's offset"] if formula.item_offsets is not None else []
        told["scores"] = f"in the order of {sides}{''.join(offsets)}"
    return told


def _items(train: Interactions, scorer: Scorer, formula: Formula | None, name: str) -> pa.Table:
    vectors = item_vectors_of(scorer) if formula is None else formula.item_vectors
    if vectors is None:
        raise HushrecError(f"{name} has no vectors of items; hand its run's folder over as it is")
    offsets = None if formula is None else formula.item_offsets
    table = _rows("item", train.item_ids, vectors, offsets)
    if train.titles is None:
        return table
    return table.add_column(1, "title", pa.array(train.titles.tolist(), pa.string()))


def _rows(
    name: str, ids: NDArray[Any], vectors: NDArray[np.float32], offsets: NDArray[np.float32] | None
) -> pa.Table:
    """An id, a vector, and an offset where there is one."""
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    columns = {name: pa.array(ids), "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])}
    if offsets is not None:
        columns["offset"] = pa.array(np.ascontiguousarray(offsets, np.float32))
    return pa.table(columns)


def _written(table: pa.Table, told: dict[str, str], ending: str) -> bytes:
    table, out = table.replace_schema_metadata({"hushrec": msgspec.json.encode(told)}), BytesIO()
    if ending == "parquet":
        pa_parquet.write_table(table, out)
    else:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue()


def _kept(files: dict[str, bytes], to: Path) -> list[Path]:
    check_folder_to_write(to, option("to"))
    there = [name for name in files if (to / name).exists()]
    if there:
        raise HushrecError(f"{to / there[0]} is there already; choose another {option('to')}, or move it away")
    for name, data in files.items():
        if name.startswith("users."):
            write_private_file(to / name, data)
        else:
            write_file(to / name, data, option("to"))
    return [to / name for name in files]
