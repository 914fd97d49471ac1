"""A Merkle tree over the hashes of the audit log's rows, as RFC 6962 has it: its root stands for all rows, and a path of
some twenty hashes proves that one row of a million is among them.

The tree grows at its right edge only, so the roots of its full subtrees are all that is kept of it.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256


def leaf(row_hash: str) -> bytes:
    return sha256(b"\0" + row_hash.encode("utf-8", "backslashreplace")).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


class MerkleTree:
    """So many leaves, as the roots of full subtrees, the largest first."""

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if len(self.peaks) != size.bit_count():
            raise ValueError("so many leaves have another number of full subtrees")

    def append(self, leaf: bytes) -> None:
        size = self.size
        while size & 1:
            leaf = node(self.peaks.pop(), leaf)
            size >>= 1
        self.peaks.append(leaf)
        self.size += 1

    def root(self) -> str:
        if not self.peaks:
            return sha256(b"").hexdigest()
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node(peak, root)
        return root.hex()


def path(leaves: Sequence[bytes], index: int) -> list[str]:
    """The hashes that lead from a leaf to the root, the nearest first."""
    if len(leaves) <= 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = leaves[:half], leaves[half:]
    near, far, place = (left, right, index) if index < half else (right, left, index - half)
    aside = MerkleTree()
    for one in far:
        aside.append(one)
    return [*path(near, place), aside.root()]
