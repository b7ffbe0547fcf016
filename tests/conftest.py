"""Makes the helpers of one folder of tests importable from all others: `systems.runs`, `deploy.federation`."""

import signal

# Tests press Ctrl-C in commands that they start; in the background of a shell these would inherit to ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
