"""`make demo`: the main job, from data to recommendations and a report."""

import sys
from pathlib import Path

from hushrec.cli.app import run_command


def main() -> None:
    """Run the demo; what it makes goes into a folder."""

    def command() -> None:
        from hushrec.cli.groups import work

        work("demo").show_demo(Path(sys.argv[1]))

    run_command(command)


if __name__ == "__main__":
    main()
