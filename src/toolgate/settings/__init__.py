"""One Settings for all of Toolgate: defaults, then `toolgate.yaml`, then TOOLGATE_* in the environment, then arguments.

Read here and nowhere else. Names are snake_case; camelCase is read as well. A key that does not exist is refused with the
nearest one that does. Relative paths are taken from the folder of the file that names them, and in variables and arguments
from the working directory. The groups stand in one module each; `root` has them all, `load` reads them.
"""

from toolgate.settings.approvals import ApprovalNoticeSettings, ApprovalRule, ApprovalSettings, WebhookSettings
from toolgate.settings.limits import RateRule
from toolgate.settings.load import VARIABLE_PREFIX, load_settings, variables_of_settings
from toolgate.settings.notify import ChannelSettings
from toolgate.settings.policy import PolicySettings
from toolgate.settings.registration import RegistrationSettings
from toolgate.settings.root import Settings
from toolgate.settings.sandbox import SandboxSettings
from toolgate.settings.secrets import SECRET_NAME, SecretUse
from toolgate.settings.section import Section
from toolgate.settings.servers import OAuthSettings, SamplingSettings, ServerSettings, ServerToolSettings
from toolgate.settings.teams import TeamSettings
from toolgate.settings.workflows import N8nSettings, WorkflowSettings

__all__ = [
    "SECRET_NAME",
    "VARIABLE_PREFIX",
    "ApprovalNoticeSettings",
    "ApprovalRule",
    "ApprovalSettings",
    "ChannelSettings",
    "N8nSettings",
    "OAuthSettings",
    "PolicySettings",
    "RateRule",
    "RegistrationSettings",
    "SamplingSettings",
    "SandboxSettings",
    "SecretUse",
    "Section",
    "ServerSettings",
    "ServerToolSettings",
    "Settings",
    "TeamSettings",
    "WebhookSettings",
    "WorkflowSettings",
    "load_settings",
    "variables_of_settings",
]  # fmt: skip
