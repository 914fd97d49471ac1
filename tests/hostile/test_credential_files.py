"""Well-known files of credentials, by name: in a home, in a project, and under another person's home. None can be read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolgate import App
from toolgate.screening.filenames import holds
from toolgate.screening.paths import SensitivePaths

pytestmark = pytest.mark.requirement("TIER-1")

IN_A_HOME = """
.ssh/id_ed25519 .ssh/config .ssh/known_hosts .aws/credentials .aws/config .aws/sso/cache/a.json .azure/accessTokens.json
.azure/msal_token_cache.json .config/gcloud/application_default_credentials.json .config/gcloud/credentials.db
.kube/config .docker/config.json .netrc .pgpass .my.cnf .mylogin.cnf .npmrc .yarnrc.yml .pypirc .config/pip/pip.conf
.cargo/credentials.toml .gem/credentials .m2/settings.xml .gradle/gradle.properties .composer/auth.json
.config/composer/auth.json .nuget/NuGet/NuGet.Config .git-credentials .config/git/credentials .config/gh/hosts.yml
.config/glab-cli/config.yml .config/hub .gitconfig .terraform.d/credentials.tfrc.json .terraformrc .vault-token
.oci/config .config/doctl/config.yaml .config/hcloud/cli.toml .config/linode-cli .config/scw/config.yaml .fly/config.yml
.railway/config.json .config/heroku/config.json .netlify/config.json .local/share/com.vercel.cli/auth.json
.config/configstore/firebase-tools.json .supabase/access-token .config/stripe/config.toml .config/ngrok/ngrok.yml
.cloudflared/cert.pem .wrangler/config/default.toml .sentryclirc .wakatime.cfg .kaggle/kaggle.json
.cache/huggingface/token .huggingface/token .claude/.credentials.json .claude.json .codex/auth.json
.gemini/oauth_creds.json .config/github-copilot/hosts.json .config/openai/auth.json .databrickscfg .snowsql/config
.snowflake/connections.toml .dbt/profiles.yml .s3cfg .boto .passwd-s3fs .mc/config.json .config/rclone/rclone.conf
.msmtprc .fetchmailrc .authinfo .mbsyncrc .smbcredentials .davfs2/secrets .gnupg/private-keys-v1.d/a.key
.password-store/a.gpg .local/share/keyrings/login.keyring .mozilla/firefox/x/logins.json
.config/google-chrome/Default/Cookies .thunderbird/x/key4.db .purple/accounts.xml .bitcoin/wallet.dat
.electrum/wallets/default .config/solana/id.json .vnc/passwd .Xauthority .ICEauthority .erlang.cookie .bash_history
.zsh_history .python_history .psql_history .rediscli_history .node_repl_history .bashrc .profile .zshenv
.config/sops/age/keys.txt .config/op/config .config/containers/auth.json .minikube/profiles/a/client.key .jupyter/token
.some-tool-of-next-year/session Library/Keychains/login.keychain-db AppData/Roaming/gcloud/credentials.db
""".split()  # noqa: SIM905 - a table is read more easily so

IN_A_PROJECT = """
.env .env.production .npmrc .yarnrc.yml .pypirc pip.conf nuget.config auth.json .netrc .pgpass .dockercfg
.dockerconfigjson .git-credentials credentials.json client_secret.json service-account.json firebase-adminsdk-1.json
terraform.tfstate prod.tfstate prod.tfvars credentials.tfrc.json kubeconfig secrets.yml config/database.yml
config/master.key app/config/parameters.yml app/etc/env.php sites/default/settings.php wp-config.php LocalSettings.php
.htpasswd proftpdpasswd sftp-config.json .ftpconfig .remote-sync.json .vscode/sftp.json .idea/WebServers.xml
.idea/dataSources.local.xml deployment-config.json filezilla.xml recentservers.xml sitemanager.xml ventrilo_srv.ini
robomongo.json mongoid.yml .tugboat heroku.json .s3cfg .boto rclone.conf clouds.yaml openrc.sh rootkey.csv
accessKeys.csv kaggle.json ngrok.yml .sentryclirc .vault_pass ansible-vault-password.txt id_rsa server.key store.p12
store.pfx app.jks putty.ppk a.pkcs8 vault.kdbx a.psafe3 a.keychain a.opvault a.1pif office.ovpn office.rdp a.cscfg
a.publishsettings krb5.keytab krb5cc_1000 UTC--2016-01-01T00-00-00.000000000Z--00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa
wallet.dat otr.private_key sasl_passwd chap-secrets ipsec.secrets wpa_supplicant.conf .smbcredentials unattend.xml
sysprep.inf debian.cnf .mongorc.js cqlshrc
""".split()  # noqa: SIM905

INNOCENT = """
.gitignore .editorconfig .github/workflows/ci.yml .vscode/settings.json .idea/modules.xml .prettierrc .eslintrc.json
database.py config/database.example.yml config/routes.rb settings.php src/Configuration.php docs/pip.conf.md
.python-version library/books.txt appdata/readme.txt groups.xml profiles.yml package.json clouds.txt wallet.py keys.json
.dockerignore
""".split()  # noqa: SIM905


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with all of it, and a project in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, names in ((tmp_path, IN_A_HOME), (tmp_path / "project", [*IN_A_PROJECT, *INNOCENT])):
        for name in names:
            if not (folder / name).is_dir():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text("hunter2")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


@pytest.fixture
async def app(person: Path) -> AsyncIterator[App]:
    async with App.open(home=person / "project" / ".toolgate") as app:
        yield app


def test_the_table_is_long() -> None:
    assert len(set(IN_A_HOME)) >= 73
    assert len(set(IN_A_PROJECT)) >= 73


async def test_none_in_a_home_can_be_read(app: App, person: Path) -> None:
    read = []
    for name in IN_A_HOME:
        for path in (f"~/{name}", str(person / name), f"../{name}"):
            outcome = await app.invoke("read_file", {"path": path})
            if outcome.status != "denied" or "hunter2" in outcome.to_json().decode():
                read.append(path)
    assert read == []


async def test_none_in_a_project_can_be_read(app: App) -> None:
    outcomes = {name: await app.invoke("read_file", {"path": name}) for name in IN_A_PROJECT}
    assert [name for name, outcome in outcomes.items() if outcome.status != "denied"] == []


async def test_innocent_files_of_a_project_can(app: App) -> None:
    outcomes = {name: await app.invoke("read_file", {"path": name}) for name in INNOCENT}
    assert [name for name, outcome in outcomes.items() if not outcome.ok] == []


@pytest.mark.parametrize("home", ["/home/bob", "/root", "/Users/bob", "/var/home/bob", "/c:/Users/bob"])
def test_other_peoples_homes_count_too(home: str) -> None:
    guard = SensitivePaths(home=Path("/home/ada"))
    assert guard.reason(f"{home}/.some-tool/session") is not None
    assert guard.reason(f"{home}/notes.txt") is None
    assert guard.reason(f"{home}/.some-tool/session", writing=True) is not None


async def test_a_setting_opens_what_is_hidden(person: Path) -> None:
    async with App.open(home=person / "project" / ".toolgate", paths={"allowed": ["~/.some-tool-of-next-year"]}) as app:
        (person / "project" / "link").symlink_to(person / ".some-tool-of-next-year")
        assert app.parts.tiers.paths.reason("~/.some-tool-of-next-year/session") is None
        assert app.parts.tiers.paths.reason("~/.config/openai/auth.json") is not None


def test_a_project_inside_of_a_hidden_folder_can_be_worked_on(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts Toolgate there means that folder, and no other."""
    work = person / ".local" / "share" / "project"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    guard = SensitivePaths(home=person)
    assert guard.reason("notes.txt") is None
    assert guard.reason(".env") is not None
    for path in ("../other.txt", "../../state/x", "~/.config/x", "~/.local/share/keyrings/login.keyring"):
        assert guard.reason(path) is not None, path


def test_without_a_home_there_is_still_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user whom the system does not know
    assert SensitivePaths().reason("notes.txt") is None
    assert SensitivePaths().reason("/home/bob/.x/y") is not None


def test_the_names_are_judged_without_regard_to_case() -> None:
    assert [name for name in IN_A_PROJECT if holds(f"/srv/{name.upper()}") is None] == []
