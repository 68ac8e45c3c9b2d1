"""Every word of `%tf_gpu`, in the order of the help, by group; each is a module of its name, or `policy`."""

from __future__ import annotations

from tfgpu_magic.ground.message import Line, in_a_row, msg
from tfgpu_magic.notebook.words import POLICIES
from tfgpu_magic.parking.table import PARK, UNPARK
from tfgpu_magic.policy.requests import limit
from tfgpu_magic.policy.word import Above, Flag, Word

ISOLATED = Above(
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
        Flag(
            "--detach",
            "",
            "don't wait: the cell runs in the background, and `%tf_gpu jobs` lists it",
            tried=("--background", "--bg", "--async", "--nowait", "--no-wait"),
        ),
    ),
    "WORDS",
    msg(
        "Write `{line}`, with a policy as in `limit 2GiB` or `--limit 2GiB`.",
        line=Line("isolate [-i NAMES] [-o NAMES] [--gpus N] [--timeout TIME] [--detach] [POLICY]", "above"),
    ),
    "Above a cell, `%%tf_gpu isolate` runs it in a process of its own. The names that it reads are sent along, those "
    "after -o are brought back, and all its GPU memory comes back. WORDS are a policy for that process; "
    "`--limit 2GiB` is `limit 2GiB`.",
)
MEASURED = Above(
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

WORDS: tuple[Word, ...] = (
    *POLICIES,
    Word(
        "plan",
        ("plan WORDS",),
        "show what the words would do, GPU by GPU, and change nothing",
        takes=True,
        group="Set memory",
    ),
    Word(
        "status",
        ("status",),
        "show GPUs, processes and this kernel's TensorFlow; also `%tf_gpu` alone",
        also=("",),
        tried=(*("memory", "mem", "usage", "info", "nvidia-smi"), *("list", "show", "gpus", "devices", "processes")),
        instead=in_a_row((msg("Who holds what is `{line}`.", line=Line("status")), limit.EXAMPLES)),
        group="See who holds memory",
    ),
    Word(
        "top",
        ("top",),
        "show the same as a live table in a notebook; it goes on while cells run",
        tried=("watch", "live", "monitor"),
        instead=msg("The live table is `{line}`.", line=Line("top")),
        group="See who holds memory",
    ),
    Word(
        "measure",
        ("%%tf_gpu measure", "measure", "measure --fit"),
        "show what its cell does to GPU memory: the exact peak, and what stays; --fit shows how much to ask for",
        flags=(("--fit", False), ("--as", True)),
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
        flags=(("--above", True),),
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
        flags=(("--all", False),),
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
        tried=("release", "empty_cache", "gc", "collect", "del", "delete"),
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
        flags=(("--warm", False),),
        tried=("run", "exec", "background"),
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
        ("code [WORDS]",),
        "print Python for a script that does what the words do, or what is set already",
        takes=True,
        group="Use in scripts and shells",
    ),
    Word(
        "env",
        ("env [WORDS]",),
        "print shell lines that do it, as far as environment variables can",
        takes=True,
        group="Use in scripts and shells",
    ),
    Word("help", ("help",), "show this list; also `%tf_gpu?`", also=("--help", "-h", "?")),
)
