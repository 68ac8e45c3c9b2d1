"""Every command, in the order of the help: of `%tf_gpu` and `%gpu` in a notebook, and of `tfgpu` in a shell.

Usage, flags, help, completion and the tables of the documentation are made from it. In a notebook a command is a module
of its name here, or `policy`; in a shell it is one of its name in `command`, or does what it does in a notebook.
"""

from __future__ import annotations

from tfgpu_magic.ground.message import WAIT, Line, msg, paragraph
from tfgpu_magic.notebook.words import POLICIES
from tfgpu_magic.parking.table import PARK, UNPARK
from tfgpu_magic.policy.arguments import SIZES
from tfgpu_magic.policy.requests import limit
from tfgpu_magic.policy.word import CellForm, Flag, ShellForm, Word

WAITS = Flag(
    WAIT,
    "[TIME]",
    "wait for room if others hold too much: at most 30m, or TIME: 90s, 10m, 2h",
    values=("30m", "10m", "2h"),
)
"""The flag of a policy, of an isolated cell and of a program."""
ISOLATED = CellForm(
    (
        Flag(
            "-i",
            "NAMES",
            "send only these names (`-` for none), or with `+x,y` these too; else those that the cell reads",
            tried=("--input", "--inputs", "--in", "--send", "--names"),
        ),
        Flag(
            "-o",
            "NAMES",
            "bring these names back, as in `-o model,history`",
            tried=("--output", "--outputs", "--out", "--bring", "--return"),
        ),
        Flag("--gpus", "N", "see only N GPUs, the free ones with most memory", values=("1", "2")),
        Flag("--timeout", "TIME", "end it after so long: 90s, 10m, 2h", values=("90s", "10m", "2h")),
        WAITS,
        Flag(
            "--detach",
            "",
            "don't wait: the cell runs in the background, and `%tf_gpu jobs` lists it",
            tried=("--background", "--bg", "--async", "--nowait", "--no-wait"),
        ),
    ),
    "POLICY",
    msg(
        "Write `{line}`, with a policy as in `limit 2GiB` or `--limit 2GiB`.",
        line=Line(
            "isolate [-i NAMES] [-o NAMES] [--gpus N] [--timeout TIME] [--wait [TIME]] [--detach] [POLICY]", "above"
        ),
    ),
    "Above a cell, `%%tf_gpu isolate` runs it in a process of its own. The names that it reads are sent along, those "
    "after -o are brought back, and all its GPU memory comes back. POLICY is a policy for that process; "
    "`--limit 2GiB` is `limit 2GiB`.",
)
MEASURED = CellForm(
    (
        Flag("--as", "NAME", "put the result into a name, as an object", tried=("-o", "--to", "--name")),
        Flag("--fit", "", "say how much to ask for, too: from the highest peaks of this session, with a margin"),
    ),
    "",
    msg(
        "Write `{line}` or `{above}` in the first line of a cell, or `with tfgpu_magic.measure() as m:` above a part "
        "of it.",
        line=Line("measure [--as NAME]"),
        above=Line("measure [--as NAME] [--fit]", "above"),
    ),
    "Above a cell, `%%tf_gpu measure` says what it did to GPU memory: the exact peak of each logical GPU, what stayed "
    "in use, and what the driver gave. The cell runs in the notebook as any other.",
)

_RUN, _SEE, _TRY, _ADMINISTER = "Run programs", "See who holds memory", "Try and check", "For administrators"
_GROUPS = (_RUN, _SEE, _TRY, _ADMINISTER, "More")
"""The headings of the help in a shell, in their order."""


def _of_shells(name: str, usage: str, meaning: str, group: str, *flags: Flag, rest: str = "") -> Word:
    """Return a command that only `tfgpu` has."""
    return Word(name, shell=ShellForm(usage, meaning, group, flags, rest))


def _as_word(meaning: str) -> ShellForm:
    """Return the form of a command that prints for a policy what it shows in a notebook."""
    return ShellForm('"POLICY"', meaning, _RUN, rest="POLICY", as_word=True)


WORDS: tuple[Word, ...] = (
    *POLICIES,
    _of_shells(
        "run",
        '[--wait [TIME]] "POLICY" -- PROGRAM',
        "run an unchanged program under a policy",
        _RUN,
        Flag("--script", "", "PROGRAM is a Python script, whatever its name"),
        WAITS,
        Flag("--called", "COMMAND"),  # what the user has typed; PROGRAM is what its Python runs
        rest="POLICY",
    ),
    Word(
        "plan",
        ("plan POLICY",),
        "show what a policy would do, GPU by GPU, and change nothing",
        takes=True,
        shell=_as_word("show what a policy would do, GPU by GPU, and change nothing"),
        group="Set memory",
    ),
    Word(
        "status",
        ("status",),
        "show GPUs, processes and this kernel's TensorFlow; also `%tf_gpu` alone",
        also=("",),
        tried=(*("memory", "mem", "usage", "info", "nvidia-smi"), *("list", "show", "gpus", "devices", "processes")),
        instead=paragraph((msg("Who holds what is `{line}`.", line=Line("status")), limit.EXAMPLES)),
        shell=ShellForm(
            "[--json]",
            "show who holds the memory of which GPU",
            _SEE,
            (Flag("--json", "", "write it as one line of JSON"),),
        ),
        group="See who holds memory",
    ),
    Word(
        "top",
        ("top",),
        "show the same as a live table in a notebook; it goes on while cells run",
        tried=("watch", "live", "monitor"),
        instead=msg("The live table is `{line}`.", line=Line("top")),
        shell=ShellForm("", "show the same live in a terminal; q ends it", _SEE),
        group="See who holds memory",
    ),
    Word(
        "measure",
        ("%%tf_gpu measure", "measure", "measure --fit"),
        "show what its cell does to GPU memory: the exact peak, and what stays; --fit shows how much to ask for",
        flags=MEASURED.flags,
        tried=("memit", "mprun", "profile", "peak", "time", "fit"),
        instead=msg(
            "What a cell takes is `{above}` above it; how much to ask for is `{line}`.",
            above=Line("measure", "above"),
            line=Line("measure --fit"),
        ),
        above=MEASURED,
        group="Understand memory",
    ),
    Word(
        "track",
        ("track on [--above 64MiB]", "track off", "track"),
        "show a line below each cell that changes memory much; alone, a chart of the session and what each cell did",
        flags=(Flag("--above", "SIZE", "the least change that is shown: 64MiB", SIZES),),
        takes=True,
        tried=("record", "history", "trace", "monitor", "chart", "timeline"),
        instead=msg(
            "What each cell does to memory is `{on}`; `{shown}` shows it.", on=Line("track on"), shown=Line("track")
        ),
        group="Understand memory",
    ),
    Word(
        "tensors",
        ("tensors", "tensors --all"),
        "show what holds this notebook's GPU memory, by name: variables, models, results, errors; the largest, or all",
        flags=(Flag("--all", "", "show all, and not only the largest"),),
        tried=("arrays", "objects", "variables", "vars", "who", "whos", "live_arrays"),
        instead=msg("What holds this notebook's memory is `{line}`.", line=Line("tensors")),
        group="Understand memory",
    ),
    Word(
        "why",
        ("why",),
        "explain the last out-of-memory error, and show what would help; shown automatically below the error",
        tried=("oom", "explain", "debug", "diagnose", "error"),
        instead=msg("Why a cell ran out of memory is `{line}`.", line=Line("why")),
        group="Understand memory",
    ),
    Word(
        "free",
        ("free", "free x,model"),
        "free memory held by IPython's results, the last traceback, garbage and any names given; show what became "
        "free and what went back to the driver",
        takes=True,
        tried=("release", "empty_cache", "gc", "del", "delete"),
        instead=msg(
            "`{free}` lets go of what nobody needs, and of names: `{names}`.",
            free=Line("free"),
            names=Line("free x,model"),
        ),
        group="Get memory back",
    ),
    Word(
        "isolate",
        ("%%tf_gpu isolate", "%%tf_gpu isolate -o model limit 2GiB", "isolate --warm"),
        "run the cell in a process of its own, which gives its GPU memory back; --warm prepares for that",
        flags=(Flag("--warm", "", "prepare for isolated cells: import TensorFlow for them"),),
        tried=("exec", "background"),
        instead=msg("Above a cell, `{line}` runs it in a process of its own.", line=Line("isolate", "above")),
        above=ISOLATED,
        group="Get memory back",
    ),
    Word(
        "jobs",
        ("jobs", "jobs stop 1"),
        "list the isolated cells that run in the background, with their states; `stop` ends one",
        takes=True,
        tried=("stop", "kill", "cancel"),
        instead=msg("`{line}` ends an isolated cell that runs in the background.", line=Line("jobs stop 1")),
        group="Get memory back",
    ),
    PARK,
    UNPARK,
    Word(
        "code",
        ("code [POLICY]",),
        "print Python for a script that does what a policy does, or what is set already",
        takes=True,
        group="Use in scripts and shells",
    ),
    Word(
        "env",
        ("env [POLICY]",),
        "print shell lines that do what a policy does, as far as environment variables can",
        takes=True,
        group="Use in scripts and shells",
        shell=_as_word("print shell lines that do what a policy does, as far as environment variables can"),
    ),
    _of_shells(
        "demo",
        "[--lab]",
        "show `top` on a simulated machine with neighbours, or the tour in JupyterLab",
        _TRY,
        Flag("--lab", "", "open the tour in JupyterLab, in a browser"),
        Flag("--here", "", "with --lab: on the GPUs of this machine, if it has any"),
        Flag("--no-browser", "", "with --lab: only print the address"),
        Flag("--port", "N", "with --lab: 8888, or the next free port"),
    ),
    _of_shells(
        "doctor",
        "[--quick] [--json]",
        "check what works here, what does not, and what to do next",
        _TRY,
        Flag("--json", "", "write it as JSON, to be sent with a report"),
        Flag("--quick", "", "start neither CUDA nor TensorFlow: two seconds, not ten"),
    ),
    _of_shells("collect", "", "read the GPUs for all users of this machine, as a service", _ADMINISTER),
    _of_shells(
        "exporter",
        "[--port N] [--address HOST] [--cert FILE --key FILE]",
        "tell Prometheus what each user holds of the GPUs, and has held",
        _ADMINISTER,
        Flag("--address", "HOST", "where to listen (default: 127.0.0.1)"),
        Flag("--port", "N", "the port (default: 9836)"),
        Flag("--cert", "FILE", "for HTTPS: the certificate, in PEM"),
        Flag("--key", "FILE", "for HTTPS: its key, in PEM"),
        Flag("--client-ca", "FILE", "the authorities of clients that are answered, in PEM"),
    ),
    _of_shells(
        "limits",
        "[--show] [--dry-run] [--once] [--watch] [--clear]",
        "have driver 615 hold each user to an administrator's limits",
        _ADMINISTER,
        Flag(
            "--show",
            "",
            "show what the driver holds each user to, what they hold, and what the file says (the default)",
        ),
        Flag("--dry-run", "", "show only what the file would change, and change nothing"),
        Flag("--once", "", "set the limits now; the exit status is 1 if one is not in force"),
        Flag("--watch", "", "set them now, and again when a user comes or the file changes"),
        Flag("--clear", "", "remove the limits that this command or the service has set"),
    ),
    Word(
        "help",
        ("help [COMMAND]",),
        "show this list, or more about one command; also `%tf_gpu?`",
        takes=True,
        also=("--help", "-h", "?"),
        shell=ShellForm("[COMMAND]", "show this list, or more about one command", "More"),
    ),
)


def in_notebooks() -> tuple[Word, ...]:
    """Return the commands of a notebook, in the order of the help."""
    return tuple(word for word in WORDS if word.usage)


def in_shells() -> tuple[tuple[Word, ShellForm], ...]:
    """Return the commands of a shell with how they are written there, in the order of the help."""
    forms = [(word, word.shell) for word in WORDS if word.shell is not None]
    return tuple(sorted(forms, key=lambda form: _GROUPS.index(form[1].group)))
