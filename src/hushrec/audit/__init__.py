"""The audit: what somebody saw of a run, and what could be concluded from it. `hushrec.audit(model)` is one.

Goes in: a recorded transcript, and what the attacker itself holds. Attacks see nothing else, and import no system.
"""

from hushrec.callables import make_callable

make_callable(__name__, "hushrec.workbench:audit")
