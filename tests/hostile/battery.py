"""The shape of a hostile program, and what its text may name of the host."""

from importlib import import_module
from typing import Literal, NamedTuple, get_args

from toolgate.sandbox.jail import Feature

Language = Literal["python", "deno", "shell"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

PLACES = ("secret_file", "secret_env", "host_pid", "host_port", "host_socket", "host_abstract", "outside", "link")
"""What `{name}` in a program stands for, filled in by the driver. All other braces are left as they are.

    {secret_file}    a file of the host with a marker in it, which the host's user may read
    {secret_env}     the name of a variable of the host's environment that holds the marker
    {host_pid}       the host's process id
    {host_port}      a port on the host's loopback that accepts TCP connections (and takes UDP)
    {host_socket}    the path of a unix socket that accepts connections
    {host_abstract}  the name of an abstract unix socket that accepts connections, without its leading NUL
    {outside}        a folder that the host's user may write
    {link}           the name of a symbolic link that leads to {secret_file}, in the working directory of a program that has
                     a `workspace`
"""


class Hostile(NamedTuple):
    """A program that tries something it must not be able to do, and one that shows that the lane lets it try."""

    name: str
    """Words and underscores, its own in its language."""
    feature: Feature
    code: str
    """Prints a line `ESCAPED <what it got>` if it succeeded, else `held`. One that is killed prints neither."""
    control: str
    """The same means put to a permitted use, in the same jail: must print the line `control ok`."""
    seconds: float = 5.0
    """Its time limit. Programs that run into it name a short one."""
    workspace: bool = False
    """Whether it works in a folder of the host, in which somebody left {link}. Otherwise in a scratch of its own."""
    alone: bool = False
    """Whether it takes all the processes that its user may have: Landlock knows no others than the host's own users."""


def filled(code: str, places: dict[str, str]) -> str:
    """The program's text with the host's places in it."""
    for name in PLACES:
        code = code.replace("{" + name + "}", places[name])
    return code


def programs(language: Language) -> list[Hostile]:
    """All of a language's programs."""
    written: list[Hostile] = import_module(f"tests.hostile.{language}_programs").PROGRAMS
    found: dict[Language, list[Hostile]] = import_module("tests.hostile.found_programs").FOUND
    return [*written, *found[language]]
