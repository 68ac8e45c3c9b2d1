"""`python -m tfgpu_magic`: the command `tfgpu`."""

import sys

from tfgpu_magic.command.main import main


def start() -> None:
    """End as the command ends; with 0 by coming to an end, after which `python -i` stays."""
    if status := main():
        sys.exit(status)


if __name__ == "__main__":
    start()
