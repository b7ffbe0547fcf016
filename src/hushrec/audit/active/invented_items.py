"""Invented items: a catalogue that goes on behind the real ones, so that nearly all virtual items are invented.

Clients draw items that they do not have from the catalogue that the server names when a run begins. With 100,000
invented ones behind 1,682 real ones, a drawn item is real once in sixty times: what is real in a list is rated.
The lie is told before the first round, to clients enrolled with that catalogue, and one answer is enough.

Where each item is reported or not by itself (randomised response), items that are added attract nothing; a sum
over clients shows no lists. There it is not told.
"""

import numpy as np

from hushrec.audit.asking import Forgiving
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import Told, judge_of_list, told_of
from hushrec.audit.uploads import distinct, items_of, listed, lists
from hushrec.protocol import Ask, Role, Round, Seat, View

NUM_INVENTED = 100_000
_OF_EACH_ITEM = "report_if_set"  # a setting of systems with randomised response


def tell(stage: Stage, own: Own) -> Round[None]:
    """The first ask of an honest round; what the server would make of the answers does not matter."""
    if own.settings.get("secure_sums") or _OF_EACH_ITEM in own.settings:
        return
    for ask in stage.honest:
        yield Ask(ask.to, ask.request, Forgiving(ask.replies))
        return


def look(_before: Told | None, view: View, own: Own) -> Told:
    """What is listed and real is rated."""
    numbers = [one.numbers for one in view if type(one.message).receiver == Role.CLIENT]
    asked = np.unique(np.concatenate([*numbers, np.empty(0, np.int32)])).astype(np.int64)
    pairs = distinct(listed(view).pairs)
    return told_of(asked, pairs, items_of(pairs) < own.num_items)


ATTACK = Attack(
    name="invented items",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item that is listed, as one that exists",
    measure="F1",
    sentence=f"With {NUM_INVENTED:,} invented items in the catalogue, clients tell their rated items with an F1 "
    "of {score:.3f}; a blind guess has {chance:.2f}.",
    reads=lists,
    look=look,
    judge=judge_of_list,
    repairs=("--secure-sums",),
    lie=Lie(tell, num_invented=NUM_INVENTED),
)
