"""Checks a proof that `toolgate audit prove` wrote, without Toolgate, its log, or any package: Python 3.9 or newer.

    python check_proof.py proof.json --key PUBLIC_KEY

The public key is what makes it a proof: have it from whoever runs Toolgate, by another way than the proof. Exit 0: every
record in the proof is in the log that the key signed. Exit 1: it is not. Exit 2: wrong usage.
"""

import hashlib
import json
import sys
from typing import Any

# -- Ed25519 verification, by RFC 8032, section 6. Slow, which does not matter here.

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]


def _add(a: Point, b: Point) -> Point:
    e = (a[1] - a[0]) * (b[1] - b[0]) % P
    f = (a[1] + a[0]) * (b[1] + b[0]) % P
    g, h = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    i, j, k, m = f - e, h - g, h + g, f + e
    return i * j % P, k * m % P, j * k % P, i * m % P


def _times(number: int, point: Point) -> Point:
    total = (0, 1, 1, 0)
    while number:
        if number & 1:
            total = _add(total, point)
        point = _add(point, point)
        number >>= 1
    return total


def _same(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def _x_of(y: int, sign: int) -> "int | None":
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if square == 0:
        return None if sign else 0
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P:
        return None
    return P - x if x & 1 != sign else x


def _point(text: bytes) -> "Point | None":
    number = int.from_bytes(text, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    x = _x_of(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = _x_of(BASE_Y, 0) or 0
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """True if the owner of the public key signed the statement."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, nonce = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or nonce is None or scalar >= ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + statement).digest(), "little") % ORDER
    return _same(_times(scalar, BASE), _add(nonce, _times(challenge, key)))


# -- the log


def row_hash(record: "dict[str, Any]") -> str:
    """The hash that the log has of a row: it covers the row, and the hash of the row before. The texts stand one after
    the other, so the first must be a hash: otherwise a row could be made of what a caller wrote into another."""
    previous = record["previous_hash"]
    if len(previous) != 64 or not set(previous) <= set("0123456789abcdef"):
        raise ValueError("what should be the hash of the row before is none")
    names = ("seq", "at", "kind", "call_id", "tenant", "tool", "status")
    header = json.dumps([record[name] for name in names], separators=(",", ":"), ensure_ascii=False)
    text = previous + header + record["body"]
    return hashlib.sha256(text.encode()).hexdigest()


def root_of(leaf_hash: str, index: int, size: int, path: "list[str]") -> str:
    """The root of a tree of so many leaves, from one of them and the hashes beside its way up (RFC 9162, 2.1.3.2)."""
    found = hashlib.sha256(b"\0" + leaf_hash.encode()).digest()
    here, last = index, size - 1
    for step in path:
        beside = bytes.fromhex(step)
        if last == 0:
            raise ValueError("the path is too long")
        if here & 1 or here == last:
            found = hashlib.sha256(b"\1" + beside + found).digest()
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            found = hashlib.sha256(b"\1" + found + beside).digest()
        here, last = here >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return found.hex()


def check(proof: "dict[str, Any]", public_key: str) -> "list[str]":
    """The faults of a proof: it is good if the list is empty."""
    head = proof["head"]
    fields = {name: head[name] for name in ("at", "first", "hash", "key", "log", "root", "seq")}
    statement = b"toolgate audit head 1\n" + json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    public = bytes.fromhex(public_key)
    faults = []
    if hashlib.sha256(public).hexdigest()[:16] != head["key"]:
        faults.append(f"the head was signed by key {head['key']}, not by the key that was given")
    elif not is_signed(public, statement, bytes.fromhex(head["signature"])):
        faults.append("the signature of the head is not valid")
    if not proof["records"]:
        faults.append("there is no record in it")
    for record in proof["records"]:
        index, size = record["seq"] - head["first"] - 1, head["seq"] - head["first"]
        if not 0 <= index < size or not _leads_to(head["root"], record, index, size):
            faults.append(f"row {record['seq']} ({record['kind']} of call {record['call_id']}) is not in the signed log")
    return faults


def _leads_to(root: str, record: "dict[str, Any]", index: int, size: int) -> bool:
    try:
        return root_of(row_hash(record), index, size, record["path"]) == root
    except ValueError:
        return False


def _say(line: str) -> None:
    """On one line, whatever is in it: what a proof holds may have been written to look like our words."""
    shown = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
    sys.stdout.write("".join(shown) + "\n")


def main(words: "list[str]") -> int:
    if len(words) != 3 or words[1] != "--key":
        sys.stderr.write("usage: python check_proof.py proof.json --key PUBLIC_KEY\n")
        return 2
    try:
        with open(words[0], encoding="utf-8") as file:  # noqa: PTH123 - stands alone
            proof = json.load(file)
        if proof["format"] != "toolgate audit proof 1":
            raise ValueError("another format")
        faults = check(proof, words[2])
    except (OSError, ValueError, KeyError, TypeError) as error:
        faults, proof = [f"it cannot be read as a proof: {error!r:.200}"], None
    for fault in faults:
        _say(f"NOT PROVEN: {fault}")
    if faults or proof is None:
        return 1
    head = proof["head"]
    for record in proof["records"]:
        what = f"row {record['seq']}, {record['kind']} of {record['tool']} ({record['status']}), call {record['call_id']}"
        _say(f"PROVEN: {what}: in the log of {head['seq']} rows that key {head['key']} signed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
