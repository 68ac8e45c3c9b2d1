"""What a fork server is given to import so that it is slow to become warm."""

import time

time.sleep(1.5)
