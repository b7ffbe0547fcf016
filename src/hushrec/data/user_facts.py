"""Who the users are: gender, age group and occupation, where a data set has a file of them.

No system gets to see it, and nothing of it is kept with a run: audits score guesses by it, and tell an attacker
the half that it is supposed to know.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from hushrec.data.catalogue import users_file
from hushrec.data.interactions import Interactions

Texts = NDArray[np.str_]
Facts = Mapping[str, Texts]  # by attribute, a text for each user, "" where it is not known

_AGES = np.array([18, 25, 35, 45, 50, 56])  # where MovieLens-1M's age groups begin; before: under 18
_AGE_GROUPS = np.array(["under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+"])


def user_facts(data: Interactions) -> Facts:
    """What is known of the users, by their numbers in the data; nothing, if there is no file of them."""
    path = users_file(data.name)
    if path is None:
        return {}
    table = pa_parquet.read_table(path)
    ids = table["user"].to_numpy()
    order = np.argsort(ids)
    places = np.minimum(np.searchsorted(ids, data.user_ids, sorter=order), len(ids) - 1)
    rows = order[places]
    is_known = ids[rows] == data.user_ids
    texts = {
        "gender": np.array(table["gender"].to_pylist(), np.str_),
        "age group": _AGE_GROUPS[np.searchsorted(_AGES, table["age"].to_numpy(), side="right")],
        "occupation": np.array([str(one) for one in table["occupation"].to_pylist()], np.str_),
    }
    return {name: np.where(is_known, column[rows], "") for name, column in texts.items()}
