"""Every command of `tfgpu`, in the order of the help, by group; each is a module of its name, but `help`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """The description of a command, for the help and for the table in the documentation.

    Its module has `prepare(parser)`, which adds its arguments, and `run(options)`, which does it and returns the exit
    status; or a function that is to be called instead of returning, outside of all handlers of this package.

    Attributes:
        name: the command.
        usage: what follows the name.
        meaning: what it does.
        group: the heading below which both list it: what people want who look for it.
    """

    name: str
    usage: str
    meaning: str
    group: str

    @property
    def takes_program(self) -> bool:
        """Whether a program and its arguments follow behind ``--``."""
        return " -- " in self.usage


RUN, SEE, TRY, ADMINISTER = "Run programs", "See who holds memory", "Try and check", "For administrators"

COMMANDS = (
    Command("run", '[--wait 10m] "POLICY" -- PROGRAM', "run an unchanged program under a policy", RUN),
    Command("plan", '"POLICY"', "show what a policy would do, GPU by GPU, and change nothing", RUN),
    Command("env", '"POLICY"', "print shell lines that do it, as far as environment variables can", RUN),
    Command("status", "[--json]", "show who holds the memory of which GPU", SEE),
    Command("top", "", "show the same live in a terminal; q ends it", SEE),
    Command("demo", "[--lab]", "show `top` on a simulated machine with neighbours, or the tour in JupyterLab", TRY),
    Command("doctor", "[--quick] [--json]", "check what works here, what does not, and what to do next", TRY),
    Command("collect", "", "read the GPUs for all users of this machine, as a service", ADMINISTER),
    Command(
        "exporter",
        "[--port N] [--address HOST] [--cert FILE --key FILE]",
        "tell Prometheus what each user holds of the GPUs, and has held",
        ADMINISTER,
    ),
    Command(
        "limits",
        "[--show] [--dry-run] [--once] [--watch] [--clear]",
        "have driver 615 hold each user to an administrator's limits",
        ADMINISTER,
    ),
    Command("help", "[COMMAND]", "show this list, or more about one command", "More"),
)

REMOVED = {
    "hub": "Each user's own GPU-hours are a line of `tfgpu status`; those of all users are in Grafana.",
    "probe": "The hours of `[idle]` shut idle kernels down, and an ordinary culler stops servers.",
}
"""Commands that are no longer there, each with what does the same."""
