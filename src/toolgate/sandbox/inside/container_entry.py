"""First in a container: takes the starter's order from stdin, since a container is given no other descriptor, and starts it.

What follows the order on stdin is for the program. The host may close stdin before the program begins, which says nothing
here; so the starter reads its order from a file without a name, in place of the pipe that would be its lifeline.
"""

import marshal
import os
import sys
from types import CodeType

STARTER_FILE = __file__.rpartition("/")[0] + "/starter.py"


def read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise EOFError("the host is gone")
        data += piece
    return data


def found(program: str, path: str) -> str:
    """The program by its whole path: where it lies is the image's affair."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        whole = f"{folder}/{program}"
        if os.access(whole, os.X_OK):
            return whole
    raise FileNotFoundError("the image has no program " + program)


def main() -> CodeType:
    """The starter's program, with its argument set."""
    order = marshal.loads(read_exactly(int.from_bytes(read_exactly(4), "little")))
    order["argv"][0] = found(order["argv"][0], order["environment"]["PATH"])
    told = marshal.dumps(order)
    file = os.memfd_create("order")
    os.write(file, len(told).to_bytes(4, "little") + told)
    os.lseek(file, 0, os.SEEK_SET)
    sys.argv = [STARTER_FILE, str(file)]
    with open(STARTER_FILE, "rb") as source:  # noqa: PTH123
        return compile(source.read(), STARTER_FILE, "exec")


try:
    starter = main()
except Exception as error:  # noqa: BLE001 - whatever it is, nothing is run
    os.write(2, f"toolgate-starter: {error}\n".encode(errors="replace"))
    os._exit(125)
exec(starter, {"__name__": "__main__", "__file__": STARTER_FILE, "__builtins__": __builtins__})
