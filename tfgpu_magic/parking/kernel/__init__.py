"""What holds user code back while this process's GPU state is away, and has the state brought back for it."""
