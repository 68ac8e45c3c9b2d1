"""The ledger of what each process and call of a user may come to hold of which GPU, and the choice among GPUs."""
