"""Makes the helpers of one folder of tests importable from all others: `systems.runs`, `deploy.federation`."""

import signal
from typing import Any

# Tests press Ctrl-C in commands that they start; in the background of a shell these would inherit to ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly if nobody looked at the page in a browser."""
    skipped = [one for one in terminalreporter.stats.get("skipped", []) if "NO BROWSER" in str(one.longrepr)]
    if skipped:
        terminalreporter.write_line(
            f"NO BROWSER: {len(skipped)} tests of the page in Chromium were skipped; apt-get install chromium",
            red=True,
        )
