"""Settings of the language model that tools ask: who serves it, under which name, at which price."""

from decimal import Decimal
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from toolgate.network.addresses import is_loopback
from toolgate.settings.secrets import SECRET_NAME
from toolgate.settings.section import Section

BASE_URLS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
DEFAULT_PRICE = Decimal("0.14")
MAX_PRICE = Decimal(100_000)


class ModelChoice(Section):
    """A model, and how it is reached."""

    provider: Literal["openai", "anthropic"] = "openai"
    """The dialect that its server speaks: OpenAI's chat completions, as most servers do, or Anthropic's messages."""
    name: str | None = Field(default=None, min_length=1, max_length=200)
    """The name of the model at its server; None: there is no model."""
    base_url: str | None = None
    """Where its server is; None: OpenAI's or Anthropic's own address."""
    secret: str | None = "MODEL_API_KEY"
    """The name of the secret that holds the key; None: the server wants none."""
    input_price: Decimal = Field(default=DEFAULT_PRICE, ge=0, le=MAX_PRICE)
    """Dollars for a million tokens that the model reads."""
    output_price: Decimal = Field(default=DEFAULT_PRICE, ge=0, le=MAX_PRICE)
    """Dollars for a million tokens that it writes."""
    max_tokens: int = Field(default=8_000, ge=1, le=1_000_000)
    """The longest answer, with what the model thinks before it."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """None: not sent. Newer models refuse it."""
    timeout: float = Field(default=120, gt=0, le=3_600)
    """Seconds for an answer."""
    idle_timeout: float = Field(default=60, gt=0, le=3_600)
    """Seconds without a byte after which a streamed answer counts as broken off."""
    retries: int = Field(default=2, ge=0, le=10)
    """Times that a request is repeated which the server refused as busy or failing, and did nothing for."""
    retry_seconds: float = Field(default=60, ge=0, le=3_600)
    """Seconds that are waited before repetitions, in all. A server that asks for more is not waited for."""

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address such as https://api.example.com/v1")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("must have no user, password, query or fragment: the key is a secret, which model.secret names")
        return url.rstrip("/")

    @field_validator("secret")
    @classmethod
    def _is_secret_name(cls, name: str | None) -> str | None:
        if name is not None and not SECRET_NAME.match(name):
            raise ValueError(f"{name!r} is not the name of a secret: letters, digits and _, and no digit first")
        return name

    @property
    def address(self) -> str:
        """The base URL in effect."""
        return self.base_url or BASE_URLS[self.provider]


class ModelSettings(ModelChoice):
    """The model of all tenants, and what differs for some of them."""

    tenants: dict[str, ModelChoice] = Field(default_factory=dict)
    """By tenant: the settings above that differ for it. `{name: null}`: it has no model. With another server, `secret`
    must be said too."""

    @model_validator(mode="after")
    def _keys_stay_with_their_server(self) -> "ModelSettings":
        for tenant, own in self.tenants.items():
            if {"base_url", "provider"} & own.model_fields_set and "secret" not in own.model_fields_set:
                raise ValueError(
                    f"tenant {tenant} has another server, which would get the key of the first: say which secret holds its "
                    "own (secret: null if it wants none)"
                )
        return self

    @model_validator(mode="after")
    def _keys_are_encrypted(self) -> "ModelSettings":
        for choice in (self, *map(self.of, self.tenants)):
            parts = urlsplit(choice.address)
            if choice.secret is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
                raise ValueError(
                    "base_url must begin with https://, since a key is sent there: http:// is for this machine, "
                    "or for a server that wants no key (secret: null)"
                )
        return self

    def of(self, tenant: str) -> ModelChoice:
        """The model of a tenant."""
        own = self.tenants.get(tenant)
        return self if own is None else self.model_copy(update=own.model_dump(exclude_unset=True))
