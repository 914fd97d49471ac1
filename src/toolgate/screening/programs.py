"""Programs: which are never run, which run others, and which options of the shipped ones do.

For a tool that runs commands outside of the sandbox the lists are all there is, so they name what is harmless: a wildcard
allows only that. A program that is known to run others, or to write what its arguments name, is allowed only word for word.
The options of git, npm and docker are looked at one by one, because they are allowed as shipped. They are recognised however
they are written (`-rf`, `-r -f`, `--rec`, `--recursive=x`); an option that only looks like a dangerous one is refused too.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DENIED = (
    "sudo*", "su", "doas", "pkexec", "run0", "runuser", "sg", "newgrp", "setpriv", "capsh", "dd", "mkfs*", "mke2fs",
    "mkswap", "fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "wipefs", "shred", "shutdown", "reboot", "halt",
    "poweroff", "init", "telinit", "systemctl", "service", "chroot", "nsenter", "unshare", "pivot_root", "mount",
    "umount", "losetup", "insmod", "rmmod", "modprobe", "kexec", "passwd", "chpasswd", "useradd", "usermod", "userdel",
    "groupadd", "visudo", "crontab", "at", "batch", "eval", "exec", "source", "command", "builtin", "alias", "rm -rf",
)  # fmt: skip
"""Never run, whatever is allowed. With options: if all of them are given, in any spelling and order."""

HARMLESS = _names(
    """basename cat cksum cmp comm cp cut date diff dirname du echo expand expr factor false file fold grep head hostname
    id join jq ln ls md5sum mkdir mktemp mv nl nproc numfmt od paste pathchk pr printenv printf pwd readlink realpath
    rev rmdir seq sha1sum sha256sum sha512sum sleep stat sum tac tail test touch tr tree true tsort tty uname unexpand
    uniq uptime wc whoami yes"""
)
"""Programs that run no other, whatever their arguments. What they read and write, the rules of files decide."""

RUNS_OTHERS = _names(
    """apt awk bashbug bubblewrap bun bwrap cargo catchsegv choom chrt cmake coproc cscript curl dbus-launch
    dbus-run-session dc deb-systemd-invoke debconf debugfs deno diff3 dpkg-architecture ed editor emacs entr ex expect
    faked fakeroot fd find firejail flock ftp gcc gdb gdbserver go gosu gpg-agent i386 i486 i586 i686 instmodsh
    ld-linux ld.so less linux32 linux64 ltrace m4 make man more most mshta mysql nano nc ncat netcat nmap nvim openssl
    osascript pager parallel perf pico pinentry pip pipx prlimit proot psql qemu rename rg rpcgen rsync run-parts
    runcon rundll32 scp screen script sdiff sed sensible-browser sensible-editor sensible-pager setarch sftp socat
    sort split sqlite3 ssh ssh-agent ssh-copy-id start-stop-daemon startx strace su-exec systemd-cat systemd-inhibit
    systemd-run tar taskset tclsh tcpdump tmux trap uclampset uname26 unbuffer uvx valgrind vi view vim vipw watch
    wget wish wscript x86_64 xargs xdg-open xinit xterm xvfb-run zip"""
)
"""Programs that run others, or write files, in ways that are told by their arguments: allowed only word for word."""

LAUNCHER_NAMES = ("fakeroot-*", "faked-*", "ld-linux*", "ld-*.so*", "ld.so*", "qemu-*", "sensible-*", "pinentry-*")
"""Those of them that have a name for each machine, terminal or way to do it: ld-linux-x86-64.so.2, qemu-arm."""

INTERPRETERS = _names(
    """ash bash cmd csh dash fish ksh lua mksh node npx perl php powershell pwsh python rbash ruby sh tcsh zsh"""
)
"""Programs that run what their first operand names: an option before it has to stand in the entry that allows them."""

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
}
"""Options by which a program that is allowed as shipped runs another, or reads or writes what its caller names."""

TEXTS = {
    "git": re.compile(r"\A\S*?(?<![A-Za-z0-9])(?:ext|fd)::|\A\S*?\w://-"),
    "npm": re.compile(r"\A\S*?(?<![A-Za-z0-9])(?:git\+)?ext::|\Agit\+ext|\A-[^=\s]*[:/@]"),
}
"""Arguments, options or not, that do the same. An address counts wherever it begins, but not in a sentence."""

VALUED = {"docker build": "tfmc"}
"""Letters of options that take the rest of their word as a value: what follows them is no option."""

GLOBAL = {
    "git": {"--no-pager", "-P", "--version", "--help", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"},
    "docker": {"--version", "--help"},
}
"""Options that may stand before the subcommand. Everything else there changes what the subcommand does, or for whom."""

GIT_COMMANDS = {
    "add", "am", "apply", "archive", "blame", "branch", "cat-file", "check-ignore", "checkout", "cherry-pick", "clean",
    "clone", "commit", "count-objects", "describe", "diff", "fetch", "for-each-ref", "format-patch", "fsck", "gc", "grep",
    "init", "log", "ls-files", "ls-remote", "ls-tree", "merge", "merge-base", "mv", "name-rev", "notes", "prune", "pull",
    "push", "range-diff", "rebase", "reflog", "remote", "reset", "restore", "rev-list", "rev-parse", "revert", "rm",
    "shortlog", "show", "show-branch", "show-ref", "sparse-checkout", "stash", "status", "switch", "symbolic-ref", "tag",
    "version", "worktree",
}  # fmt: skip
"""Subcommands that are git's own and run nothing else; another name may be an alias for anything."""

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


def runs_others(program: str) -> bool:
    """True if a program runs others in ways that are told by its arguments."""
    lower = program.lower()
    return not RUNS_OTHERS.isdisjoint((lower, family(program))) or any(fnmatchcase(lower, name) for name in LAUNCHER_NAMES)


def is_harmless(program: str) -> bool:
    """True if a program may have any arguments: it runs no other, or its options are looked at."""
    return program in HARMLESS or program in WRAPPERS or family(program) in ("git", "npm", "docker")


def letters(arguments: Sequence[str]) -> set[str]:
    """All one-letter options that are given, alone or together."""
    short = [argument[1:] for argument in arguments if argument.startswith("-") and not argument.startswith("--")]
    return {SAME_LETTER.get(letter, letter) for cluster in short for letter in cluster}


def gives(argument: str, option: str, *, valued: str = "", negates: bool = False) -> bool:
    """True if an argument gives an option, also shortened, with a value, together with others, or spelled otherwise."""
    given = argument.partition("=")[0]
    if option.startswith("--"):
        name = _plain(given, negates)
        return argument.startswith("-") and len(given) > 2 and len(name) > 0 and option[2:].startswith(name)
    if len(option) == 2 and option.startswith("-"):
        return argument.startswith("-") and not argument.startswith("--") and option[1] in _cluster(argument, valued)
    return given == option


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
    """True if arguments have all that a rule names, apart from the program: `-rf` is r and f, in any spelling."""
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
    """The part of the arguments from `start` on that makes the program do more than its name says; None if none is known to.

    What comes before was written by whoever allowed the command.
    """
    program = family(argv[0])
    before, command = _split_at_command(argv[1:])
    if program in INTERPRETERS:
        option = next(iter(before[start - 1 :]), None)
        return None if option is None else f"the option {option.partition('=')[0]} before what it runs"
    given = list(argv[start:])
    odd = next((word for word in before[start - 1 :] if word not in GLOBAL.get(program, ())), None)
    if program in GLOBAL and odd is not None:
        return f"{odd.partition('=')[0]} before the subcommand"
    if program == "git" and start < 2 and command is not None and command not in GIT_COMMANDS:
        return f"the subcommand {command}, which may be an alias or run others"
    if program == "npm" and "--" in given:
        given = given[: given.index("--")]
    options = f"{OPTIONS.get(program, '')} {OPTIONS.get(f'{program} {command}', '')}".split()
    valued = VALUED.get(f"{program} {command}", "")
    for argument in given:
        for option in options:
            if gives(argument, option, valued=valued, negates=program == "npm"):
                return f"the option {option}"
    pattern = TEXTS.get(program)
    if pattern is not None and any(pattern.search(argument) for argument in given):
        return "an argument that makes it run, read or write something else"
    return None


def _split_at_command(arguments: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The options before the first operand, and that operand."""
    for index, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return arguments[:index], argument
    return arguments, None
