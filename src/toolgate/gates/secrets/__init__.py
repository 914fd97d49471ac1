"""Secrets by reference: `{{secret:NAME}}` in an argument becomes the value at the last moment before the tool runs.

Values come from sources that an operator set up, never from the environment at large: a caller that could name any
variable could read them all. `step` is what the pipeline calls; `uses` says into which tools one may be put; `names`, how it
is named and for whom it is; `environment`, `file` and `system` (the keyring) are the sources. How a value may look when
it comes back: `screening.secret_patterns`.
"""

from toolgate.gates.secrets.environment import from_environment
from toolgate.gates.secrets.names import ENVIRONMENT_PREFIX, NAME, REFERENCE
from toolgate.gates.secrets.sources import ListedSecret, Source, Vault, open_sources
from toolgate.gates.secrets.step import Secrets

__all__ = [
    "ENVIRONMENT_PREFIX",
    "NAME",
    "REFERENCE",
    "ListedSecret",
    "Secrets",
    "Source",
    "Vault",
    "from_environment",
    "open_sources",
]  # fmt: skip
