"""The runtime for TypeScript and JavaScript: Deno without any permission, in the jail, running `inside/deno_runner.js`.

The untrusted code is never Deno's main module: that one may import files of the host without being asked for a permission.
The runner imports it from a `data:` address, from which nothing else can be reached.

V8 compiles to machine code here, and is not told to only interpret: a loop takes a quarter of the time, and the 512 MB of
addresses that it sets aside for each engine's code make a second engine, which is what a worker is, exceed RLIMIT_DATA.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from toolgate.sandbox.jail import MB, ResourceLimits, Spec, Unavailable

RUNNER = Path(__file__).resolve().parent.parent / "inside" / "deno_runner.js"

LEAST_MEMORY = 96 * MB
"""Deno itself takes about 40 MB."""
DENO_FLAGS = (
    "--quiet",
    "--cached-only",
    *(f"--no-{what}" for what in ("prompt", "remote", "npm", "lock", "config", "code-cache", "check")),
    *(f"--deny-{what}" for what in ("import", "read", "write", "net", "env", "run", "ffi", "sys")),
)
"""No permission is given; the refusals by name stay even if a later version of Deno gave some by itself."""


def find_deno(configured: Path | None) -> Path:
    """Deno's program: the one that is named, that of the `deno` package, or the one on the path."""
    if configured is not None:
        if not os.access(configured, os.X_OK) or configured.is_dir():
            raise Unavailable(
                f"{configured} is no program that can be run. Set sandbox.deno to Deno's program, or leave it out."
            )
        return configured.resolve()
    found = _packaged() or shutil.which("deno")
    if found is None:
        raise Unavailable(
            "Deno, which runs TypeScript and JavaScript, is not installed: install the extra toolgate[sandbox].",
            suggestion="`toolgate doctor` shows the command that installs it.",
        )
    return Path(found).resolve()


def _packaged() -> str | None:
    with suppress(ImportError, FileNotFoundError):
        from deno import find_deno_bin

        return str(find_deno_bin())
    return None


def spec(deno: Path, limits: ResourceLimits) -> Spec:
    """The process to jail for one job. Its files are the host's to read and write, so it has no workspace."""
    if limits.memory < LEAST_MEMORY:
        raise Unavailable(f"Deno needs at least {LEAST_MEMORY // MB} MB of memory; the limit is {limits.memory // MB} MB.")
    # Objects end at the heap's bound, with V8's own message; what is not in the heap (ArrayBuffer, wasm) at RLIMIT_DATA. Of
    # 256 MB, about 185 can be objects or 240 buffers.
    heap = limits.memory // MB - 64
    engine = f"--single-threaded,--max-old-space-size={heap},--max-semi-space-size=4,--wasm-max-committed-code-mb=32"
    return Spec(
        profile="deno",
        argv=(str(deno), "run", *DENO_FLAGS, f"--v8-flags={engine}", str(RUNNER)),
        environment=(("DENO_NO_UPDATE_CHECK", "1"), ("NO_COLOR", "1")),
        readable=(RUNNER,),
        limits=limits,
    )
