"""The secrets of MCP servers: those that their settings name, and their logins. No caller can refer to either."""

from collections.abc import Collection, Iterable, Mapping

from toolgate.errors import SettingsError, StoreError
from toolgate.gates.secrets.gate import Secrets
from toolgate.gates.secrets.names import OF_LOGINS, OF_SERVERS, SERVER_PREFIX, key_of
from toolgate.gates.secrets.sources import Vault


class ServerSecrets:
    """One for each App."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def find(self, name: str) -> str | None:
        """A secret that the settings of a server name."""
        return self._secrets.find_own(name, OF_SERVERS)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of these names that are not set."""
        return [name for name in names if self.find(name) is None]

    def login(self, name: str) -> str | None:
        """A part of a server's login, for that server alone: settings can't name it."""
        return self._secrets.find_own(name, OF_LOGINS)

    def keep_login(self, name: str, value: str) -> None:
        """Keeps a part of a server's login."""
        vault = next((source for source in self._secrets.sources if isinstance(source, Vault)), None)
        if vault is None:
            raise StoreError("There is no place to keep a server's login in.")
        vault.set(key_of(name, OF_LOGINS), value)

    def keep(self, secrets: Mapping[str, str], own: Collection[str] = ()) -> None:
        """Keeps the credentials of servers. One that is there already stays, unless it is `own` to the server that is
        changed: something else may need it."""
        if not secrets:
            return
        vaults = (one for one in self._secrets.sources if isinstance(one, Vault) and one.why_not() is None)
        vault = next(vaults, None)
        if vault is None:
            raise StoreError(
                f"The values of {', '.join(secrets)} can't be kept as secrets here.",
                suggestion=f"Leave them out, and set them in Toolgate's environment as {SERVER_PREFIX}NAME.",
            )
        held = vault.held()
        for name, value in secrets.items():
            if name not in own and key_of(name, OF_SERVERS) in held and self.find(name) != value:
                raise SettingsError(
                    f"There is a secret {name} already, with another value.",
                    suggestion=f"`toolgate secrets remove {name} --servers` removes it.",
                )
        for name, value in secrets.items():
            vault.set(key_of(name, OF_SERVERS), value)
