"""How the command is installed. All else is in pyproject.toml."""

import os

from setuptools import setup

# The script that installers write loads modules before it calls us, and Ctrl-C is a traceback there. Ours heeds it
# from its first line. On Windows only theirs is a program that can be called by its name.
if os.name == "nt":
    setup(entry_points={"console_scripts": ["hushrec = hushrec.cli.app:main"]})
else:
    setup(scripts=["bin/hushrec"])
