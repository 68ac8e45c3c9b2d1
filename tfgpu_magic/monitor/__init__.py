"""From the drivers' figures to the rows that views show: snapshot, owners, rows."""
