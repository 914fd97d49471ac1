"""Makes a bundle of a folder of tools, and the key that signs it. Nothing here needs an App: whoever packs for an
organisation need not run Toolgate for it."""

import os
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import BundleRefused, StoreError
from toolgate.settings.teams import ORGANISATION_ID
from toolgate.store.head_keys import KeyFile, id_of
from toolgate.teams.bundle import (
    FILE_NAME,
    FORMAT,
    MAX_BUNDLE_BYTES,
    MAX_FILES,
    BundleManifest,
    document_text,
    manifest_text,
    open_bundle,
    read_manifest,
    signed_statement,
)
from toolgate.teams.tool_files import parse_tools
from toolgate.trust import read_regular


class SigningKey(NamedTuple):
    """The key of an organisation, by its public half."""

    public_key: str
    key_id: str
    file: Path


def create_key(file: Path) -> SigningKey:
    """Makes a key in a file that only its owner may read. Raises BundleRefused if there is a file."""
    if os.path.lexists(file):
        raise BundleRefused(
            f"There is a file {file} already.", suggestion="Name another: a key that is overwritten signs nothing any more."
        )
    KeyFile(file).key_id()
    return open_key(file)


def open_key(file: Path) -> SigningKey:
    """The key in a file. Raises BundleRefused."""
    keys = KeyFile(file)
    if not file.exists():
        raise BundleRefused(f"There is no key file {file}.", suggestion=f"`toolgate teams create-key {file}` makes one.")
    try:
        key_id = keys.key_id()
        public = keys.public_key(key_id)
    except StoreError:
        public, key_id = None, ""
    if public is None:
        raise BundleRefused(f"{file} is no key file of an organisation.", suggestion="Put back a copy of it.")
    return SigningKey(public, id_of(public), file)


def pack(
    folder: Path,
    *,
    key: SigningKey,
    org_id: str,
    version: int,
    created: datetime,
    expires: datetime,
    enforced: Iterable[str] = (),
    disable_local_tools: bool = False,
) -> str:
    """The bundle of the YAML tools in a folder. The same folder, key, version and times give the same text.

    Raises BundleRefused for what no installation would take: a link, a subfolder, a wrong tool, an enforced name that is
    none of its tools.
    """
    if not ORGANISATION_ID.match(org_id):
        raise BundleRefused(
            f"{org_id[:80]!r} is no organisation id.", suggestion="Small letters, digits, and . _ -, at most 64 in all."
        )
    files = _read_folder(folder)
    manifest = BundleManifest(
        format=FORMAT,
        org_id=org_id,
        version=version,
        created=created.replace(microsecond=0),
        expires=expires.replace(microsecond=0),
        files={name: sha256(content.encode()).hexdigest() for name, content in files.items()},
        enforced=sorted(set(enforced)),
        disable_local_tools=disable_local_tools,
    )
    text = manifest_text(manifest)
    try:
        read_manifest(text)
        parse_tools(manifest, files)
    except BundleRefused as error:  # whoever would be asked to correct a bundle is the one who packs it
        raise BundleRefused(error.message, suggestion=f"Correct it in {folder}, and pack again.") from None
    signature = KeyFile(key.file).sign(signed_statement(text))
    packed = document_text(text, signature, key.key_id, files)
    open_bundle(packed.encode(), org_id=org_id, public_key=key.public_key, now=created)
    return packed


def _read_folder(folder: Path) -> dict[str, str]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        raise BundleRefused(f"{folder} cannot be read: {error.strerror or error}.") from None
    entries = [entry for entry in entries if not entry.name.startswith(".")]
    if not entries:
        raise BundleRefused(f"{folder} has no tools in it.", suggestion="`toolgate tools new NAME` writes one.")
    if len(entries) > MAX_FILES:
        raise BundleRefused(f"{folder} has more than {MAX_FILES} files.")
    files: dict[str, str] = {}
    size = 0
    for entry in entries:
        if not entry.is_file(follow_symlinks=False):
            raise BundleRefused(
                f"{entry.path} is no regular file.", suggestion="A bundle has files only: no folders and no links."
            )
        if not FILE_NAME.match(entry.name):
            raise BundleRefused(
                f"{entry.path} is no tool's file.",
                suggestion="Keep only YAML tools in the folder: names of letters, digits, _ and -, ending in .yml or .yaml.",
            )
        try:
            files[entry.name] = read_regular(Path(entry.path)).decode()
        except UnicodeDecodeError:
            raise BundleRefused(f"{entry.path} is not UTF-8 text.") from None
        except OSError as error:
            raise BundleRefused(f"{entry.path} cannot be read: {error.strerror or error}.") from None
        size += len(files[entry.name])
        if size > MAX_BUNDLE_BYTES:
            raise BundleRefused(f"{folder} has more than {MAX_BUNDLE_BYTES:,} bytes of tools.")
    return files
