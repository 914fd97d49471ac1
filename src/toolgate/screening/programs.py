"""What is known of programs: which are never run, which run others, and by which of their options.

Tables for `commands`, and how an option is recognised however it is written: `-rf`, `-r -f`, `--rec`, `--recursive=x`.
They err on the side of refusing: an option that only looks like a dangerous one is refused as well.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

DENIED = (
    "sudo*", "su", "doas", "pkexec", "run0", "runuser", "sg", "newgrp", "setpriv", "capsh", "dd", "mkfs*", "mke2fs",
    "mkswap", "fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "wipefs", "shred", "shutdown", "reboot", "halt",
    "poweroff", "init", "telinit", "systemctl", "service", "chroot", "nsenter", "unshare", "pivot_root", "mount",
    "umount", "losetup", "insmod", "rmmod", "modprobe", "kexec", "passwd", "chpasswd", "useradd", "usermod", "userdel",
    "groupadd", "visudo", "crontab", "at", "batch", "eval", "exec", "source", "command", "builtin", "alias", "rm -rf",
)  # fmt: skip
"""Never run, whatever is allowed. With options: if all of them are given, in any spelling and order."""

SHELLS = (
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "pwsh", "powershell", "cmd",
)  # fmt: skip

LAUNCHERS = {
    "xargs", "watch", "parallel", "script", "flock", "setarch", "chrt", "taskset", "strace", "ltrace", "gdb", "perf",
    "valgrind", "unbuffer", "expect", "systemd-run", "start-stop-daemon", "screen", "tmux", "su-exec", "gosu", "fakeroot",
    "proot", "bwrap", "firejail", "dbus-run-session", "xvfb-run", "socat", "nc", "ncat", "netcat", "vi", "vim", "nvim",
    "view", "ed", "ex", "emacs", "nano", "pico", "less", "more", "most", "sqlite3", "psql", "mysql", "ftp", "dc", "m4",
    "rename", "tclsh", "wish", "prlimit", "linux32", "linux64", "uname26", "x86_64", "i386", "i486", "i586", "i686", "choom",
    "uclampset", "ld.so", "ssh-agent", "gpg-agent", "dpkg-architecture", "debconf", "debugfs", "systemd-cat",
    "systemd-inhibit", "runcon", "run-parts", "bashbug", "rpcgen", "dbus-launch", "xinit", "startx", "xterm", "entr",
    "coproc", "catchsegv", "gdbserver", "cscript", "wscript", "mshta", "rundll32", "osascript", "xdg-open", "instmodsh",
    "nmap", "editor", "pager", "visudo", "vipw", "deb-systemd-invoke", "ssh-copy-id", "trap",
}  # fmt: skip
LAUNCHER_NAMES = ("fakeroot*", "faked*", "ld-linux*", "ld-*.so*", "ld.so*", "qemu-*", "sensible-*", "setarch*", "pinentry*")
"""Programs that run others in ways which their arguments don't show: allowed only as whole commands, word for word."""

RUNS_CODE = {
    "java", "jshell", "jrunscript", "scala", "groovy", "kotlin", "clojure", "rscript", "julia", "octave", "guile",
    "racket", "sbcl", "clisp", "swipl", "ghci", "runghc", "erl", "escript", "elixir", "iex", "mono", "dotnet", "gjs",
    "qjs", "tsx", "ts-node", "wine", "irb", "rake", "bundle", "gem", "prove", "perldoc", "pydoc", "pdb", "cpan", "uv",
    "poetry", "pipenv", "conda", "tox", "nox", "hatch", "nix", "nix-shell", "guix", "corepack", "pnpx", "direnv",
    "ansible", "ansible-playbook", "gradle", "mvn", "ant",
}  # fmt: skip
"""Programs that run what their arguments name, like interpreters: a wildcard does not allow them."""

DURATION = r"[\d.]+[smhd]?"
WRAPPERS = {
    "env": "",
    "nohup": "",
    "busybox": "",
    "toybox": "",
    "time": r"(?:-p\0)?",
    "setsid": r"(?:(?:-[wcf]+|--wait|--ctty|--fork)\0)*",
    "nice": r"(?:(?:-n\0?-?\d+|--adjustment=-?\d+|--?\d+)\0)?",
    "ionice": r"(?:-[cn]\d\0)*",
    "stdbuf": r"(?:-[ioe](?:L|\d+[KMG]?)\0)+",
    "timeout": rf"(?:(?:--foreground|-v|(?:-s|--signal=)[A-Z0-9]+|(?:-k|--kill-after=){DURATION})\0)*{DURATION}\0",
}
"""Programs that run the rest of their arguments, after these options of their own: the rest must be allowed by itself."""

INTERPRETERS = {
    **dict.fromkeys(SHELLS, "-c -i -l -s -o -O --rcfile --init-file --login --init-command -"),
    "python": "-c -m -i -x -X -W -",
    "perl": "-e -E -M -m -I -x -d -i -n -p -",
    "ruby": "-e -r -I -x -n -p -",
    "node": (
        "-e -p -r -i --eval --print --require --import --loader --experimental-loader --env-file --inspect --inspect-brk -"
    ),
    "deno": "eval repl -A -c --allow-all --allow-run --allow-ffi --preload --import-map --config",
    "bun": "x -e -r --eval --preload",
    "php": "-r -d -B -R -F -E -c -z -a --run --define",
    "lua": "-e -l -i -",
    "npx": "-c -p --call --package --shell --node-options --prefix --userconfig",
    "uvx": "--from --with",
    "pipx": "--spec",
}
"""Programs that run code, and their options, up to the first operand, that bring code of the caller's."""

OPTIONS = {
    "git": (
        "--exec-path --config-env --upload-pack --receive-pack --exec --extcmd --open-files-in-pager --output "
        "--ext-diff --textconv --unsafe-paths"
    ),
    "git clone": "-c -u --config --template",
    "git init": "--template",
    "git rebase": "-x",
    "git grep": "-O",
    "git archive": "-o",
    "npm": (
        "-C -L -c -g --script-shell --shell --node-options --prefix --userconfig --globalconfig --git --editor --viewer "
        "--browser --registry --global --location --init-module --onload-script --call --proxy --https-proxy --http-proxy "
        "--strict-ssl --cafile"
    ),
    "docker": (
        "-o -v -H --host --context --config --secret --ssh --output --build-context --allow --network --net --security-opt "
        "--device --cgroup-parent --iidfile --metadata-file --volume --volumes-from --mount --privileged --pid --ipc --uts "
        "--userns --cap-add --gpus --env-file --cidfile --entrypoint"
    ),
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
    "fd": "-x -X --exec --exec-batch",
    "rg": "--pre --hostname-bin",
    "tar": (
        "-I -F --to-command --checkpoint-action --use-compress-program --rsh-command --rmt-command --info-script "
        "--new-volume-script"
    ),
    "zip": "-TT --unzip-command",
    "rsync": "-e --rsh --rsync-path",
    "ssh": "-o -F -I -J -E -S",
    "scp": "-o -F -S -J",
    "sftp": "-o -F -S -b -J",
    "sdiff": "-o --output --diff-program",
    "diff": "--diff-program",
    "apt": "-o -c --option --config-file",
    "cmake": "-P -E -C",
    "openssl": "-engine -provider -provider-path",
    "sort": "-o --compress-program --output --files0-from",
    "split": "--filter",
    "tcpdump": "-z -w",
    "man": "-P -H --pager --html",
    "awk": (
        "-f -e -E -l -i -o -d -p -D --file --exec --include --load --source --debug --profile --pretty-print "
        "--dump-variables"
    ),
    "sed": "-f --file",
    "curl": "-K -o -O -T -J --config --output --remote-name --upload-file --output-dir --netrc-file",
    "wget": (
        "-e -O -i -P --execute --output-document --input-file --use-askpass --post-file --body-file --config "
        "--directory-prefix"
    ),
    "make": "-f -C -I -E --eval --file --makefile --directory --include-dir",
    "cargo": "-Z --config --manifest-path",
    "go": "-toolexec -exec -overlay -modfile -C -ldflags -gcflags",
    "gcc": "-wrapper -specs -B -fplugin",
    "pip": (
        "-i -f -t --index-url --extra-index-url --find-links --config-settings --global-option --python --prefix "
        "--target --root --trusted-host --proxy"
    ),
}
"""Options by which a program runs another, or reads or writes what its caller names."""

TEXTS = {
    "git": re.compile(r"\A\S*?(?<![A-Za-z0-9])(?:ext|fd)::|\A\S*?\w://-"),
    "npm": re.compile(r"\A\S*?(?<![A-Za-z0-9])(?:git\+)?ext::|\Agit\+ext|\A-[^=\s]*[:/@]"),
    "curl": re.compile(r"\A\s*file:|\A\s*(?:.*=|-\w+)?@|=file:", re.IGNORECASE | re.DOTALL),
    "zip": re.compile(r"\A-\w*T\w*T"),
    "awk": re.compile(r"\bsystem\b|[|>]|\bgetline\b|@"),
    "make": re.compile(r"\A[\w.]+\s*[:+?!]{0,3}="),
}
"""Arguments, options or not, that do the same. An address counts wherever it begins, but not in a sentence."""

VALUED = {"docker build": "tfmc", "cmake": "DGBSTAU"}
"""Letters of options that take the rest of their word as a value: what follows them is no option."""

NEGATES = {"npm", "npx"}
"""Programs for which --no-no-x is --x. Elsewhere an option that is negated is off."""

NEEDS = {"sed": "--sandbox"}
"""What must be among the arguments: without it, a script can run commands and write files."""

GLOBAL = {
    "git": {"--no-pager", "-P", "--version", "--help", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"},
    "docker": {"--version", "--help"},
}
"""What may stand before the subcommand. Everything else there changes what the subcommand does, or for whom."""

GIT_COMMANDS = {
    "add", "am", "apply", "archive", "blame", "branch", "cat-file", "check-ignore", "checkout", "cherry-pick", "clean",
    "clone", "commit", "count-objects", "describe", "diff", "fetch", "for-each-ref", "format-patch", "fsck", "gc", "grep",
    "init", "log", "ls-files", "ls-remote", "ls-tree", "merge", "merge-base", "mv", "name-rev", "notes", "prune", "pull",
    "push", "range-diff", "rebase", "reflog", "remote", "reset", "restore", "rev-list", "rev-parse", "revert", "rm",
    "shortlog", "show", "show-branch", "show-ref", "sparse-checkout", "stash", "status", "switch", "symbolic-ref", "tag",
    "version", "worktree",
}  # fmt: skip
"""What is known to be git's own and to run nothing else; another name may be an alias for anything."""

SAME_LETTER = {"R": "r"}
SAME_WORD = {"r": "--recursive", "f": "--force"}
VERSION = re.compile(r"[\d.]+\Z")
ARCHITECTURE = (
    r"(?:x86_64|i[3-6]86|aarch64|arm\w*|riscv64|powerpc\w*|s390x|mips\w*)(?:-\w+)?-(?:linux|darwin|freebsd)(?:-\w+)?"
)
FOR_MACHINE = re.compile(rf"\A{ARCHITECTURE}-(?=\w)|-{ARCHITECTURE}\Z")
FLAVOUR = re.compile(r"\.(?:basic|tiny|nox|gtk\d*|athena|gnome|motif|mini|full)\Z")
FAMILIES = {
    "gawk": "awk", "mawk": "awk", "nawk": "awk", "original-awk": "awk", "gsed": "sed", "gfind": "find", "gtar": "tar",
    "bsdtar": "tar", "gsort": "sort", "gmake": "make", "pnpm": "npm", "yarn": "npm", "podman": "docker", "nodejs": "node",
    "pypy": "python", "ipython": "python", "pythonw": "python", "sh.distrib": "sh",
    "luajit": "lua", "bunx": "npx", "cc": "gcc", "clang": "gcc", "gxargs": "xargs",
    "g++": "gcc", "c++": "gcc", "cpp": "gcc", "gfortran": "gcc", "clang++": "gcc", "apt-get": "apt", "apt-cache": "apt",
    "aptitude": "apt", "ipdb": "pdb", "genv": "env", "gtimeout": "timeout", "gnice": "nice", "gstdbuf": "stdbuf",
    "fdfind": "fd",
}  # fmt: skip
"""Other names of the same program, or of one that takes the same options."""


def family(program: str) -> str:
    """The name under which the tables know a program: without version, machine and flavour, and without the suffix that
    Windows gives it."""
    name = re.sub(r"\.(?:exe|com|cmd|bat)\Z", "", program.lower())
    name = FLAVOUR.sub("", FOR_MACHINE.sub("", name))
    name = VERSION.sub("", name).rstrip("-") or name
    return FAMILIES.get(name, name)


def launches(program: str) -> bool:
    """Whether a program runs others in ways that its arguments don't show."""
    lower = program.lower()
    return not LAUNCHERS.isdisjoint((lower, family(program))) or any(fnmatchcase(lower, name) for name in LAUNCHER_NAMES)


def runs_code(program: str) -> bool:
    """Whether a program runs code that its caller names, so that a wildcard does not allow it."""
    return family(program) in INTERPRETERS or family(program) in RUNS_CODE


def hidden_interpreter(argv: Sequence[str]) -> str | None:
    """The first argument that is a shell or an interpreter, of a program of which nothing is known: it may well run it."""
    if family(argv[0]) in OPTIONS or family(argv[0]) in NEEDS:
        return None
    for argument in argv[1:]:
        for piece in re.split(r"[=,]", argument):
            name = re.split(r"[/\\]", (piece.split() or [""])[0])[-1]
            if family(name) in INTERPRETERS and name.lower() != "cmd":
                return name
    return None


def letters(arguments: Sequence[str]) -> set[str]:
    """All one-letter options that are given, alone or together."""
    short = [argument[1:] for argument in arguments if argument.startswith("-") and not argument.startswith("--")]
    return {SAME_LETTER.get(letter, letter) for cluster in short for letter in cluster}


def gives(argument: str, option: str, *, clusters: bool = True, valued: str = "", negates: bool = False) -> bool:
    """Whether an argument gives an option, also shortened, with a value, together with others, or spelled otherwise."""
    given = argument.partition("=")[0]
    if option.startswith("--"):
        name = _plain(given, negates)
        return argument.startswith("-") and len(given) > 2 and len(name) > 0 and option[2:].startswith(name)
    if len(option) == 2 and option.startswith("-") and clusters:
        return argument.startswith("-") and not argument.startswith("--") and option[1] in _cluster(argument, valued)
    return given == option or (len(option) == 2 and argument.startswith(option) and not argument.startswith("--"))


def _plain(option: str, negates: bool) -> str:
    """The name of an option as its program looks it up: some read -name and --Some_Name as --some-name."""
    name = option.lstrip("-").lower().replace("_", "-")
    while negates and name.startswith("no-"):
        name = name[3:].lstrip("-")
    return name


def _cluster(argument: str, valued: str) -> str:
    """The letters of a word that are options."""
    letters = argument[1:]
    first = min((letters.index(letter) for letter in valued if letter in letters), default=len(letters))
    return letters[: first + 1]


def denies(rule: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether arguments have all that a rule names, apart from the program: `-rf` is r and f, in any spelling."""
    there = letters(arguments)
    rest = iter(arguments)
    for part in rule:
        if part.startswith("--"):
            found = any(gives(argument, part) for argument in arguments)
        elif part.startswith("-"):
            found = all(
                SAME_LETTER.get(letter, letter) in there
                or any(gives(argument, SAME_WORD.get(letter.lower(), "--" + letter)) for argument in arguments)
                for letter in part[1:]
            )
        else:
            found = part in rest
        if not found:
            return False
    return True


def danger(argv: Sequence[str], start: int) -> str | None:
    """What in the arguments from `start` on makes the program do more than its name says; None if nothing is known to.

    What comes before was written by whoever allowed the command.
    """
    program = family(argv[0])
    if program in INTERPRETERS:
        return _brings_code(program, argv[1:], start - 1)
    given = list(argv[start:])
    before, command = _split_at_command(argv[1:])
    odd = next((word for word in before[start - 1 :] if word not in GLOBAL.get(program, ())), None)
    if program in GLOBAL and odd is not None:
        return f"{odd.partition('=')[0]} before the subcommand"
    if program == "git" and start < 2 and command is not None and command not in GIT_COMMANDS:
        return f"the subcommand {command}, which may be an alias or run others"
    if program in NEEDS and NEEDS[program] not in argv:
        return f"a script without {NEEDS[program]}"
    if program == "tar" and start == 1 and given and not given[0].startswith("-"):
        given[0] = f"-{given[0]}"
    if program == "npm" and "--" in given:
        given = given[: given.index("--")]
    options = f"{OPTIONS.get(program, '')} {OPTIONS.get(f'{program} {command}', '')}".split()
    valued = VALUED.get(program) or VALUED.get(f"{program} {command}", "")
    return _option(options, given, valued, program in NEGATES) or _text(program, given)


def _split_at_command(arguments: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The options before the first operand, and that operand."""
    for index, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return arguments[:index], argument
    return arguments, None


def _brings_code(program: str, arguments: Sequence[str], start: int) -> str | None:
    before, operand = _split_at_command(arguments)
    if start > len(before):
        return None
    given = [*before[start:], *([operand] if operand is not None else ())]
    return _option(INTERPRETERS[program].split(), given, negates=program in NEGATES)


def _option(options: Sequence[str], given: Sequence[str], valued: str = "", negates: bool = False) -> str | None:
    clusters = not any(len(option) > 2 and option[0] == "-" != option[1] for option in options)
    for argument in given:
        for option in options:
            if gives(argument, option, clusters=clusters, valued=valued, negates=negates):
                return f"the option {option}" if option.startswith("-") else option
    return None


def _text(program: str, given: Sequence[str]) -> str | None:
    pattern = TEXTS.get(program)
    if pattern is not None and any(pattern.search(argument) for argument in given):
        return "an argument that makes it run, read or write something else"
    return None
