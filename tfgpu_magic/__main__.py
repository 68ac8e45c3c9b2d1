"""`python -m tfgpu_magic`: the command `tfgpu`."""

import sys

from tfgpu_magic.command.main import main

if __name__ == "__main__":
    sys.exit(main())
