"""What a fork server is given to import so that it dies."""

import os

os._exit(7)
