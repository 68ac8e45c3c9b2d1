"""From the driver's figures to the rows that views show: snapshot, owners, rows."""
