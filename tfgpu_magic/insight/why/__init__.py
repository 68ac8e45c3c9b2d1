"""Why a GPU ran out of memory: read from the error, from the pools and the driver, with ways out that were tried."""
