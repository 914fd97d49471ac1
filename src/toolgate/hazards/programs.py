"""What is known of programs: which are never run, which run others, and by which of their options.

Tables for `commands`, and how an option is recognised however it is written: `-rf`, `-r -f`, `--rec`, `--recursive=x`.
They err on the side of refusing: an option that only looks like a dangerous one is refused as well.
"""

import re
from collections.abc import Sequence

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
    "rename", "tclsh", "wish",
}  # fmt: skip
"""Programs that run others in ways which their arguments don't show: allowed only as whole commands, word for word."""

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
        "-C -c -g --script-shell --shell --node-options --prefix --userconfig --globalconfig --git --editor --viewer "
        "--browser --registry --global --location --init-module --onload-script --call"
    ),
    "docker": (
        "-o -v --secret --ssh --output --build-context --allow --network --net --security-opt --device "
        "--cgroup-parent --iidfile --metadata-file --volume --volumes-from --mount --privileged --pid --ipc --uts "
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
    "git": re.compile(r"[+]?(?:ext|fd)::|\w+://-"),
    "npm": re.compile(r"[+]?ext::|git\+ext"),
    "curl": re.compile(r"file:|(?:.*=|-\w+)?@", re.IGNORECASE),
    "zip": re.compile(r"-\w*T\w*T"),
    "awk": re.compile(r".*(?:\bsystem\b|[|>]|\bgetline\b|@)", re.DOTALL),
    "make": re.compile(r"[\w.]+\s*[:+?!]{0,3}="),
}
"""Arguments, options or not, that do the same."""

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
FAMILIES = {
    "gawk": "awk", "mawk": "awk", "nawk": "awk", "original-awk": "awk", "gsed": "sed", "gfind": "find", "gtar": "tar",
    "bsdtar": "tar", "gsort": "sort", "gmake": "make", "pnpm": "npm", "yarn": "npm", "podman": "docker", "nodejs": "node",
    "pypy": "python", "ipython": "python", "luajit": "lua", "bunx": "npx", "cc": "gcc", "clang": "gcc", "gxargs": "xargs",
    "genv": "env", "gtimeout": "timeout", "gnice": "nice", "gstdbuf": "stdbuf", "fdfind": "fd",
}  # fmt: skip
"""Other names of the same program, or of one that takes the same options."""


def family(program: str) -> str:
    """The name under which the tables know a program: without version, without the suffix that Windows gives it."""
    name = re.sub(r"\.(?:exe|com|cmd|bat)\Z", "", program.lower())
    name = VERSION.sub("", name).rstrip("-") or name
    return FAMILIES.get(name, name)


def letters(arguments: Sequence[str]) -> set[str]:
    """All one-letter options that are given, alone or together."""
    short = [argument[1:] for argument in arguments if argument.startswith("-") and not argument.startswith("--")]
    return {SAME_LETTER.get(letter, letter) for cluster in short for letter in cluster}


def gives(argument: str, option: str, *, clusters: bool = True) -> bool:
    """Whether an argument gives an option, also shortened, with a value, or together with others."""
    given = argument.partition("=")[0]
    if option.startswith("--"):
        long = given if given.startswith("--") else f"-{given}"  # some read -name as --name
        return len(long) > 2 and argument.startswith("-") and len(given) > 2 and option.startswith(long)
    if len(option) == 2 and option.startswith("-") and clusters:
        return argument.startswith("-") and not argument.startswith("--") and option[1] in argument[1:]
    return given == option or (len(option) == 2 and argument.startswith(option) and not argument.startswith("--"))


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
    return _option(f"{OPTIONS.get(program, '')} {OPTIONS.get(f'{program} {command}', '')}".split(), given) or _text(
        program, given
    )


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
    return _option(INTERPRETERS[program].split(), given)


def _option(options: Sequence[str], given: Sequence[str]) -> str | None:
    clusters = not any(len(option) > 2 and option[0] == "-" != option[1] for option in options)
    for argument in given:
        for option in options:
            if gives(argument, option, clusters=clusters):
                return f"the option {option}" if option.startswith("-") else option
    return None


def _text(program: str, given: Sequence[str]) -> str | None:
    pattern = TEXTS.get(program)
    if pattern is not None and any(pattern.match(argument) for argument in given):
        return "an argument that makes it run, read or write something else"
    return None
