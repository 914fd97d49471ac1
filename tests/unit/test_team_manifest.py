"""Manifests of bundles: what is read is what was signed, and no name in one is a path."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.team_bundles import ORG, Organisation
from toolgate.errors import BundleRefused
from toolgate.teams.bundle import (
    FORMAT,
    MAX_VERSION,
    BundleManifest,
    document_text,
    manifest_text,
    open_bundle,
    read_manifest,
)
from toolgate.teams.pack import create_key, pack

pytestmark = pytest.mark.requirement("REG-1")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
DIGEST = "0" * 64


def manifest(**fields: object) -> str:
    base = {
        "format": FORMAT, "org_id": "acme", "version": 1, "created": "2026-01-01T00:00:00Z",
        "expires": "2027-01-01T00:00:00Z", "files": {},
    }  # fmt: skip
    return json.dumps({**base, **fields})


names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,20}\.ya?ml\Z")


@given(
    st.dictionaries(names, st.just(DIGEST), max_size=5),
    st.integers(1, MAX_VERSION),
    st.integers(0, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
def test_a_manifest_comes_back_as_it_was_written(files: dict[str, str], version: int, created: datetime) -> None:
    if len({name.lower() for name in files}) < len(files):
        files = {}
    made = BundleManifest(
        format=FORMAT, org_id="acme", version=version, created=created,
        expires=created + timedelta(days=1), files=files,
    )  # fmt: skip
    assert read_manifest(manifest_text(made)) == made
    assert manifest_text(read_manifest(manifest_text(made))) == manifest_text(made)


@given(st.text(max_size=40) | st.sampled_from(["../a.yml", "a/b.yml", "/a.yml", "C:\\a.yml", "..yml", "a.yml\n", "a.yml\0"]))
def test_a_name_that_is_taken_leads_nowhere(name: str) -> None:
    try:
        read_manifest(manifest(files={name: DIGEST}))
    except BundleRefused:
        return
    for kind in (PurePosixPath, PureWindowsPath):
        assert kind(name).parts == (name,)
    assert name not in (".", "..")
    assert name.isascii()
    assert name.isprintable()


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3))
)
def test_whatever_stands_in_a_field_is_read_or_refused(value: object) -> None:
    for field in ("format", "org_id", "version", "created", "expires", "files", "enforced", "disable_local_tools", "more"):
        try:
            read = read_manifest(manifest(**{field: value}))
        except BundleRefused:
            continue
        assert read.format == FORMAT
        assert 1 <= read.version <= MAX_VERSION
        assert read.created < read.expires


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bundle_or_refused(content: bytes) -> None:
    with pytest.raises(BundleRefused):
        open_bundle(content, org_id="acme", public_key="ab" * 32, now=NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0}, {"version": 1.5}, {"version": True}, {"version": MAX_VERSION + 1}, 
        {"created": "2026-01-01T00:00:00"},
        {"created": "2028-01-01T00:00:00Z"}, {"files": {"a.yml": "xyz"}}, {"files": {"a.yml": DIGEST, "A.yml": DIGEST}},
        {"org_id": "Acme"}, {"org_id": "../acme"}, {"enforced": ["a b"]}, {"format": "toolgate-bundle/2"},
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BundleRefused, match="manifest"):
        read_manifest(manifest(**fields))


def test_the_same_folder_key_version_and_times_give_the_same_bundle(tmp_path: Path) -> None:
    org = Organisation(tmp_path)
    org.write("b")
    org.write("a")
    how = {"key": org.key, "org_id": ORG, "version": 3, "created": NOW, "expires": NOW + timedelta(days=1)}
    first = pack(org.tools, **how)  # type: ignore[arg-type]
    for name in ("a", "b"):  # the folder is listed in another order
        org.remove(name)
        org.write(name)
    assert pack(org.tools, **how) == first  # type: ignore[arg-type]


@given(place=st.integers(0, 5_000), mask=st.integers(1, 255))
def test_one_changed_byte_is_noticed_or_means_nothing(
    tmp_path_factory: pytest.TempPathFactory, place: int, mask: int
) -> None:
    content, key = _bundle(tmp_path_factory)
    place %= len(content)
    other = content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]
    try:
        opened = open_bundle(other, org_id=ORG, public_key=key, now=NOW)
    except BundleRefused:
        return
    genuine = open_bundle(content, org_id=ORG, public_key=key, now=NOW)
    assert (opened.manifest, opened.files, opened.digest) == (genuine.manifest, genuine.files, genuine.digest)


_made: list[tuple[bytes, str]] = []


def _bundle(folders: pytest.TempPathFactory) -> tuple[bytes, str]:
    if not _made:
        folder = folders.mktemp("org")
        org = Organisation(folder)
        org.write("greet")
        packed = pack(org.tools, key=org.key, org_id=ORG, version=1, created=NOW, expires=NOW + timedelta(days=1))
        _made.append((packed.encode(), org.key.public_key))
    return _made[0]


def test_a_document_of_another_key_names_that_key(tmp_path: Path) -> None:
    key = create_key(tmp_path / "k")
    text = document_text(manifest(), b"\0" * 64, key.key_id, {})
    with pytest.raises(BundleRefused, match=key.key_id):
        open_bundle(text.encode(), org_id="acme", public_key="ab" * 32, now=NOW)
