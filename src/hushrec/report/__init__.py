"""What a run has to say: tables, figures, one self-contained page. `hushrec.report(models)` writes it.

Goes in: runs as their folders keep them. Writes pages and pictures; nothing private but what the runs hold.
"""

from hushrec.callables import make_callable

make_callable(__name__, "hushrec.workbench:report")
