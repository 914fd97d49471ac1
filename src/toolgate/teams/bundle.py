"""A bundle: the tools of an organisation as one signed JSON document, and everything that is refused of one.

The document has a manifest as text, the signature of that text, and the files that the manifest names with their SHA-256.
One document, because nothing has to be unpacked then: no paths, no links, nothing that grows, and manifest and files can't
come from two downloads. The signature is of the manifest's very characters, so no canonical form is needed to check it.
Nothing in a document is looked at closely before its size and its signature are right.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

import msgspec

from toolgate.errors import BundleRefused
from toolgate.model import TOOL_NAME
from toolgate.settings.teams import ORGANISATION_ID
from toolgate.store.head_keys import id_of, is_signed
from toolgate.yamltext import MAX_YAML_BYTES

FORMAT = "toolgate-bundle/1"
MAX_BUNDLE_BYTES = 4_000_000
MAX_FILES = 500
MAX_VERSION = 2**53
"""The largest integer that every reader of JSON takes for what it is."""
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.ya?ml\Z")
"""A name without folders, which is no path anywhere."""
SIGNED = b"toolgate-bundle/1\n"
"""Stands before what is signed: a signature of something else, such as the head of an audit log, is none of a bundle."""
ASK = "Ask whoever publishes it; nothing was changed here."

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One version of an organisation's tools: its files by hash, and its terms."""

    format: str
    org_id: str
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
    created: Annotated[datetime, msgspec.Meta(tz=True)]
    expires: Annotated[datetime, msgspec.Meta(tz=True)]
    files: Annotated[dict[str, Digest], msgspec.Meta(max_length=MAX_FILES)]
    """By name, the SHA-256 of each file."""
    enforced: Annotated[list[str], msgspec.Meta(max_length=MAX_FILES)] = []
    """Its tools that members are not to disable."""
    disable_local_tools: bool = False
    """Members are to use no tools of their own folders."""


class BundleDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle as it is kept and sent."""

    format: str
    key_id: str
    """Of the key that signed it. For messages: the key itself is known beforehand, or the bundle is refused."""
    manifest: str
    signature: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{128}$")]
    files: Annotated[dict[str, str], msgspec.Meta(max_length=MAX_FILES)]


class Bundle(msgspec.Struct, frozen=True):
    """A bundle whose signature, organisation and files are right."""

    manifest: BundleManifest
    digest: str
    """SHA-256 of the manifest's text, and so of all that it names."""
    key_id: str
    files: dict[str, str]
    text: str
    """The whole document."""


def manifest_text(manifest: BundleManifest) -> str:
    """A manifest in one form: the same content gives the same text."""
    return msgspec.json.encode(manifest, order="sorted").decode()


def document_text(manifest: str, signature: bytes, key_id: str, files: Mapping[str, str]) -> str:
    made = BundleDocument(format=FORMAT, key_id=key_id, manifest=manifest, signature=signature.hex(), files=dict(files))
    return msgspec.json.format(msgspec.json.encode(made, order="sorted"), indent=1).decode() + "\n"


def signed_statement(manifest: str) -> bytes:
    return SIGNED + manifest.encode()


def open_bundle(content: bytes, *, org_id: str, public_key: str, now: datetime) -> Bundle:
    """Checks everything about a bundle that can be told from itself. Raises BundleRefused."""
    document = _document(content)
    if not is_signed(public_key, signed_statement(document.manifest), bytes.fromhex(document.signature)):
        raise _unsigned(document.key_id, org_id, public_key)
    manifest = read_manifest(document.manifest)
    if manifest.org_id != org_id:
        raise BundleRefused(
            f"The bundle is of organisation {manifest.org_id}, and teams.org_id is {org_id}.", suggestion=ASK
        )
    if manifest.expires <= now:
        raise BundleRefused(
            f"Version {manifest.version} of the bundle expired at {_shown(manifest.expires)}.",
            suggestion="The organisation packs it again, with a later expiry; if it has, its server withholds that.",
        )
    _check_files(manifest, document.files)
    text = content.decode()
    return Bundle(manifest, sha256(document.manifest.encode()).hexdigest(), id_of(public_key), document.files, text)


def _unsigned(said: str, org_id: str, public_key: str) -> BundleRefused:
    """The refusal of a signature that is not the organisation's."""
    known = id_of(public_key)
    if said == known:
        words = f"The bundle names the key of {org_id}, but its signature does not fit its manifest: one was changed."
        return BundleRefused(words, suggestion=ASK)
    return BundleRefused(
        f"The bundle is not signed with the key of {org_id}: it says that key {said[:16]!r} signed it, and the public key "
        f"that is known of {org_id} has the id {known}.",
        suggestion="If the organisation has a new key, the operator writes it into teams.public_key, having had it from "
        "the organisation by another way than the bundle.",
    )


def _document(content: bytes) -> BundleDocument:
    if len(content) > MAX_BUNDLE_BYTES:
        raise BundleRefused(f"The bundle has more than {MAX_BUNDLE_BYTES:,} bytes.", suggestion=ASK)
    try:
        content.decode()
        document = msgspec.json.decode(content, type=BundleDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleRefused(
            f"It is not a bundle: {str(error)[:200]}.", suggestion="`toolgate teams pack FOLDER --key FILE` makes one."
        ) from None
    if document.format != FORMAT:
        raise BundleRefused(
            f"The bundle has format {document.format[:40]!r}, and this Toolgate reads {FORMAT}.",
            suggestion="Upgrade Toolgate, or have it packed by a Toolgate of this version.",
        )
    return document


def read_manifest(text: str) -> BundleManifest:
    """A manifest whose fields are each right. Raises BundleRefused."""
    try:
        manifest = msgspec.json.decode(text, type=BundleManifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BundleRefused(f"The manifest of the bundle is wrong: {str(error)[:200]}.", suggestion=ASK) from None
    problem = _problem(manifest)
    if problem is not None:
        raise BundleRefused(f"The manifest of the bundle is wrong: {problem}.", suggestion=ASK)
    return manifest


def _problem(manifest: BundleManifest) -> str | None:
    if manifest.format != FORMAT:
        return f"its format is {manifest.format[:40]!r}, not {FORMAT}"
    if not ORGANISATION_ID.match(manifest.org_id):
        return f"{manifest.org_id[:80]!r} is no organisation id"
    if manifest.expires <= manifest.created:
        return "it expires before it was created"
    bad = next((name for name in manifest.files if not FILE_NAME.match(name)), None)
    if bad is not None:
        rule = "letters, digits, _ and -, then .yml or .yaml, and no folder"
        return f"{bad[:120]!r} is not a valid name of a tool's file: {rule}"
    folded = {name.lower() for name in manifest.files}
    if len(folded) < len(manifest.files):
        return "two files have the same name but for capitals"
    bad = next((name for name in manifest.enforced if not TOOL_NAME.match(name)), None)
    return None if bad is None else f"{bad[:80]!r} in enforced is not a valid name of a tool"


def _check_files(manifest: BundleManifest, files: Mapping[str, str]) -> None:
    """Refuses files that are not those of the manifest."""
    for name in files.keys() - manifest.files.keys():
        raise BundleRefused(f"The bundle has a file {name[:120]!r} that its manifest does not name.", suggestion=ASK)
    for name, digest in manifest.files.items():
        if name not in files:
            raise BundleRefused(f"The bundle lacks the file {name} that its manifest names.", suggestion=ASK)
        content = files[name].encode()
        if sha256(content).hexdigest() != digest:
            raise BundleRefused(f"The file {name} of the bundle is not the one that its manifest names.", suggestion=ASK)
        if len(content) > MAX_YAML_BYTES:
            raise BundleRefused(f"The file {name} of the bundle has more than {MAX_YAML_BYTES:,} bytes.", suggestion=ASK)


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
