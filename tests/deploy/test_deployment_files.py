"""The files under deploy/ name settings, ports and commands that there are, and run nothing as root."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from typer.main import get_command

from tests.deploy.helm_template import render
from toolgate.cli.main import with_commands
from toolgate.settings import Settings, load_settings, variables_of_settings
from toolgate.settings.section import group_at
from toolgate.version import VERSION

pytestmark = pytest.mark.requirement("DOOR-6")
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "toolgate"
PORT = Settings().serve.port
FILLED = {
    "image": {"repository": "registry.example.com/toolgate", "tag": "1"}, "host": "gate.example.com", "secretName": "gate",
}  # fmt: skip


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def values(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return {**given, **FILLED, "image": {**given["image"], **FILLED["image"]}, **changes}  # type: ignore[dict-item]


def chart(**changes: Any) -> list[dict[str, Any]]:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {
        "Values": values(**changes), "Release": {"Name": "gate"},
        "Chart": {"Name": about["name"], "AppVersion": about["appVersion"]},
    }  # fmt: skip
    texts = [render(file.read_text(), scope) for file in sorted((CHART / "templates").glob("*.yaml"))]
    return [document for document in (yaml.safe_load(text) for text in texts) if document]


def deployment(**changes: Any) -> dict[str, Any]:
    [found] = [one for one in chart(**changes) if one["kind"] == "Deployment"]
    return found


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def parses(words: list[str]) -> None:
    """Raises if the command line has no such command, or options that it does not take."""
    command: Any = get_command(with_commands(words))
    name, *rest = words
    found = command.commands[name]
    found.make_context(name, rest, resilient_parsing=False)


def test_every_variable_names_a_setting_or_a_secret() -> None:
    files = [file for file in DEPLOY.rglob("*") if file.is_file()]
    named = {name for file in files for name in re.findall(r"TOOLGATE_[A-Z0-9_]+", file.read_text())}
    assert {"TOOLGATE_DATABASE_URL", "TOOLGATE_MCP__HOSTS"} <= named
    not_settings = {"TOOLGATE_HOST", "TOOLGATE_SECRET_", "TOOLGATE_SECRET_N8N_WEBHOOK_SECRET"}
    for name, path in variables_of_settings(dict.fromkeys(named - not_settings, "")).items():
        group = group_at(Settings, path[:-1])
        assert group is not None and path[-1] in group.model_fields, f"there is no setting for {name}"


def test_the_values_of_compose_are_settings_that_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in compose()["services"]["toolgate"]["environment"].items():
        filled = re.sub(r"\$\{(\w+)[^}]*\}", "filled", value)
        monkeypatch.setenv(name, filled)
    settings = load_settings(None, {})
    assert settings.mcp.hosts == ("filled",) and settings.policy.push and settings.n8n.base_url == "http://127.0.0.1:5678"


def test_no_password_has_a_default_and_every_image_a_version_and_a_health_check() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?", text))
    assert required == {"POSTGRES_PASSWORD", "REDIS_PASSWORD", "TOOLGATE_HOST", "N8N_WEBHOOK_SECRET", "N8N_ENCRYPTION_KEY"}
    assert set(re.findall(r"\$\{(\w+)[}:]", text)) == required and ":-" not in text
    for name, service in compose()["services"].items():
        if name != "toolgate":  # whose check is in its image
            assert re.search(r":\d+\.\d+", service["image"]) and service["healthcheck"]["test"][0] == "CMD"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_the_image_is_not_roots_has_no_secret_and_is_made_from_the_lock_file() -> None:
    steps = instructions()
    final = steps[max(index for index, step in enumerate(steps) if step[0] == "FROM") :]
    assert len([step for step in steps if step[0] == "FROM"]) == 2
    assert [value for name, value in final if name == "USER"] == ["10001:10001"]
    assert any("--require-hashes --requirement requirements/image.txt" in value for name, value in steps if name == "RUN")
    assert dict(final)["EXPOSE"] == str(PORT) and f":{PORT}/healthz" in dict(final)["HEALTHCHECK"]
    assert not re.search(r"password|secret|token", (DEPLOY / "Dockerfile").read_text(), re.IGNORECASE)
    for name, value in steps:
        if name == "COPY" and "--from" not in value:
            assert all((ROOT / one).exists() for one in value.split()[:-1])
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert kept[0] == "*" and "!src" in kept
    assert json.loads(dict(final)["ENTRYPOINT"]) == ["toolgate"]
    parses(json.loads(dict(final)["CMD"]))
    compile(json.loads(dict(final)["HEALTHCHECK"].partition("CMD ")[2])[2], "healthcheck", "exec")


def test_the_lock_file_of_the_image_has_what_its_extras_need() -> None:
    """Each requirement of the core and of the extras that the Makefile names, which are those that the page names."""
    locked = set(
        re.findall(r"^([a-z0-9.-]+)(?:\[[a-z0-9,_-]+\])?==", (ROOT / "requirements" / "image.txt").read_text(), re.MULTILINE)
    )
    [named] = re.findall(r"^IMAGE_EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in named.split() for one in extras[extra])]
    names = {re.split(r"[\[<>=;]", one)[0].strip().lower().replace("_", "-") for one in wanted} - {"toolgate"}
    assert names - locked == set()
    assert not locked & {"pytest", "mypy", "ruff"}
    words = named.split()
    assert f"the extras {', '.join(words[:-1])} and {words[-1]}." in (ROOT / "docs" / "howto" / "deploy.md").read_text()


def test_the_unit_starts_a_command_that_there_is_and_leaves_namespaces_to_the_sandbox() -> None:
    lines = (DEPLOY / "systemd" / "toolgate.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    program, *words = shlex.split(unit["ExecStart"])
    assert program.endswith("/toolgate") and str(PORT) in words
    parses(words)
    assert (unit["DynamicUser"], unit["ProtectSystem"], unit["NoNewPrivileges"]) == ("yes", "strict", "yes")
    assert unit["RestrictNamespaces"] == "no" and "SystemCallFilter" not in unit


@pytest.mark.needs("systemd")
def test_systemd_takes_the_unit() -> None:
    unit = DEPLOY / "systemd" / "toolgate.service"
    said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    others = [line for line in said.stderr.splitlines() if "is not executable" not in line]
    assert others == []
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=45", str(unit)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def test_the_chart_runs_without_root_and_asks_the_routes_that_there_are() -> None:
    spec = deployment()["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    limits = container["securityContext"]
    assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
    assert limits["capabilities"]["drop"] == ["ALL"]
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    parses(container["args"])
    probes = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"/healthz", "/readyz"}
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert json.loads(variables["TOOLGATE_MCP__HOSTS"]) == ["gate.example.com"] and variables["TOOLGATE_METRICS"] == "true"
    assert container["envFrom"] == [{"secretRef": {"name": "gate"}}]
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert mounts == {"/data", "/tmp"} and {one["name"] for one in spec["volumes"]} == {"data", "tmp"}


def test_the_chart_scales_only_if_it_is_asked_to() -> None:
    assert {one["kind"] for one in chart()} == {"Deployment", "Service"} and deployment()["spec"]["replicas"] == 2
    scaling = {**values()["autoscaling"], "enabled": True}
    found = {one["kind"]: one for one in chart(autoscaling=scaling, imagePullSecrets=[{"name": "pull"}])}
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert "replicas" not in found["Deployment"]["spec"]
    selector = found["Service"]["spec"]["selector"]
    assert selector.items() <= found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()


def test_the_schema_of_the_chart_wants_what_has_no_default() -> None:
    check = jsonschema_rs.validator_for(json.loads((CHART / "values.schema.json").read_text()))
    assert check.is_valid(values())
    assert not check.is_valid(yaml.safe_load((CHART / "values.yaml").read_text())), "an image, a host and a secret are yours"
    assert not check.is_valid(values(env={"PASSWORD": "x"})) and not check.is_valid(values(nonsense=1))
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == VERSION
