"""Gender inference: what a user's uploads say of items tells who the user is (`attributes.py`).

After Zhang, Yuan, Yin: Comprehensive Privacy Analysis on Federated Recommender System against Attribute Inference
Attacks (TKDE 2023), in idea: the attacker is the server, and knows the attributes of some users, here of half. The
classifier is a ridge regression; the paper's details were not at hand.
"""

from hushrec.audit.attributes import infer, judge
from hushrec.audit.item_rows import tells_of_items
from hushrec.audit.scoreboard import Attack
from hushrec.protocol import Role, Seat

ATTACK = Attack(
    name="gender inference",
    seats=(Seat(Role.SERVER),),
    guesses="a user's gender, from all uploads, with that of half of the users known",
    measure="balanced accuracy",
    sentence="Who knows the gender of half of the users guesses that of the others rightly, each gender counted "
    "alike, in {score:.0%} of cases; always guessing the most common one has {chance:.0%}.",
    reads=tells_of_items,
    look=infer,
    judge=lambda inferred, truth: judge(inferred, truth.attributes, "gender"),
    only_last=True,
    asks_attributes=True,
)
