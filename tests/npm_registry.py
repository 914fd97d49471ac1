"""A registry of npm on loopback, with packages that the test makes: real tarballs, with their digests; and the App that
installs from it."""

import base64
import hashlib
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.loopback import Asked, Said, Site, site
from toolgate import App, Outcome
from toolgate.model import LOCAL, Call

Member = tuple[tarfile.TarInfo, bytes]


def tarball(manifest: Mapping[str, Any], files: Mapping[str, str | bytes] | None = None, *odd: Member) -> bytes:
    """A package as `npm pack` makes it; `odd`: members that it would not make."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in {"package.json": json.dumps(manifest), **(files or {})}.items():
            content = text if isinstance(text, bytes) else text.encode()
            info = tarfile.TarInfo(f"package/{name}")
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content))
        for info, content in odd:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


class NpmRegistry:
    """The packages of a registry: by name, by version, the manifest and the tarball."""

    def __init__(self) -> None:
        self.packages: dict[str, dict[str, tuple[dict[str, Any], bytes]]] = {}
        self.at: Site | None = None
        self.host = "registry.test"
        self.tarballs_from: str | None = None
        """Where the registry says that its tarballs are, if elsewhere."""
        self.answer: Callable[[Asked], Said | None] = lambda _asked: None
        """Answers in place of the registry."""

    def add(
        self, name: str, version: str, files: Mapping[str, str | bytes] | None = None, *odd: Member, **manifest: Any
    ) -> None:
        whole = {"name": name, "version": version, **manifest}
        self.packages.setdefault(name, {})[version] = whole, tarball(whole, files, *odd)

    @property
    def url(self) -> str:
        assert self.at is not None
        return f"http://{self.host}:{self.at.port}"

    @property
    def named(self) -> str:
        """The host as Toolgate shows it."""
        return self.url.removeprefix("http://")

    @property
    def fetched(self) -> list[str]:
        """The names of the tarballs that were fetched."""
        assert self.at is not None
        return [asked.path.rpartition("/")[2] for asked in self.at.asked if asked.path.endswith(".tgz")]

    async def __call__(self, asked: Asked) -> Said:
        if (said := self.answer(asked)) is not None:
            return said
        path = unquote(asked.path).removeprefix("/")
        name, _, file = path.partition("/-/")
        versions = self.packages.get(name)
        if versions is None:
            return Said(404, {"error": "Not found"})
        if file:
            version = file.removeprefix(f"{name.rpartition('/')[2]}-").removesuffix(".tgz")
            return Said(200, versions[version][1], {"content-type": "application/octet-stream"})
        return Said(200, {"name": name, "dist-tags": {"latest": list(versions)[-1]}, "versions": self._versions(name)})

    def _versions(self, name: str) -> dict[str, Any]:
        found = {}
        for version, (manifest, content) in self.packages[name].items():
            digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
            file = f"{name.rpartition('/')[2]}-{version}.tgz"
            dist = {
                "tarball": f"{self.tarballs_from or self.url}/{name}/-/{file}",
                "integrity": f"sha512-{digest}",
                "shasum": hashlib.sha1(content).hexdigest(),
            }
            found[version] = {**manifest, "dist": dist, "hasInstallScript": "postinstall" in manifest.get("scripts", {})}
        return found


@asynccontextmanager
async def npm_registry() -> AsyncIterator[NpmRegistry]:
    registry = NpmRegistry()
    async with site(registry) as registry.at:
        yield registry


SESSION = "s"


async def resolve(host: str, _port: int) -> list[str]:
    """Names that only tests know."""
    if host.endswith(".test"):
        return ["127.0.0.1"]
    raise OSError("there is no such host")


@asynccontextmanager
async def installing(home: Path, registry: NpmRegistry, **settings: Any) -> AsyncIterator[App]:
    """An App that installs from a registry, with a person who says yes."""
    async with App.open(os.devnull, home=home, **{"registries": {"npm": registry.url}, **settings}) as app:
        app.parts.sandbox.resolve = resolve
        app.approvals.add_approver(lambda _request: True)
        yield app


async def install(app: App, **arguments: Any) -> Outcome:
    return await app.invoke("npm_install", arguments, session=SESSION)


def session_folder(app: App) -> Path:
    return app.parts.places.of(Call("", "npm_install", {}, LOCAL, SESSION))


def failed(outcome: Outcome, code: str) -> str:
    """The words of an error with this code."""
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return f"{outcome.error.message} {outcome.error.suggestion}"
