"""Names of files and folders in which programs keep credentials, wherever they stand. Tables only: `filenames` reads them.

There is no kept-up list to depend on: scanners look at what files hold, and their lists of names are few and old. These are
facts gathered from the documentation of the programs that write the files, from the names that scanners of repositories
know (gitrob, shhgit, earlybird), from the sample files of leaky-repo, and from GitHub's templates for .gitignore. What
stands hidden in a home needs no entry here, since all of that is refused (`filenames.hidden_in_home`): these are the names
that also turn up in projects, images, backups and under other homes. Each entry is lower case and says what the file holds.
"""

TYPED = "what was typed into a shell"
CREDENTIALS, CLOUD, REGISTRY = "credentials", "cloud credentials", "registry credentials"

FOLDERS = {
    ".ssh": "SSH keys", ".aws": "AWS credentials", ".gnupg": "GnuPG keys", ".azure": "Azure credentials",
    ".kube": "Kubernetes credentials", ".gcloud": "Google Cloud credentials", ".password-store": "passwords",
    "sudoers.d": "who may become root", ".envs": "environment variables and their secrets", ".oci": "cloud credentials",
    ".kaggle": "credentials", ".snowsql": "credentials", ".bitcoin": "wallets", ".filezilla": "passwords",
    ".purple": "passwords", ".gopass": "passwords", ".chef": "private keys", ".cloudflared": "credentials",
    ".ngrok2": "credentials", ".huggingface": "credentials", ".minikube": "Kubernetes credentials",
    ".terraform.d": "credentials", ".snowflake": "credentials", ".ethereum": "wallets", ".electrum": "wallets",
    ".davfs2": "passwords", ".vnc": "passwords", ".putty": "private keys", ".anydesk": "passwords", ".remmina": "passwords",
    ".jenkins": "credentials", "kwalletd": "passwords", "private-keys-v1.d": "private keys",
}  # fmt: skip
"""Folders of which nothing may be opened, wherever they are."""

PLACES = {
    ".docker/config.json": "registry credentials", ".config/gcloud": "Google Cloud credentials",
    "appdata/roaming/gcloud": "Google Cloud credentials", ".config/gh": "GitHub credentials",
    ".config/hub": "GitHub credentials", ".config/rclone": "cloud credentials", ".config/op": "passwords",
    ".m2/settings.xml": "repository credentials", ".gradle/gradle.properties": "repository credentials",
    ".mozilla/firefox": "a browser's passwords", ".local/share/keyrings": "passwords", "library/keychains": "passwords",
    ".config/google-chrome": "a browser's passwords", ".config/chromium": "a browser's passwords",
    ".config/bravesoftware": "a browser's passwords", ".config/microsoft-edge": "a browser's passwords",
    "google/chrome/user data": "a browser's passwords", "application support/google/chrome": "a browser's passwords",
    ".config/bitwarden": "passwords", ".config/signal": "messages", ".config/filezilla": "passwords",
    ".config/doctl": "cloud credentials", ".config/hcloud": "cloud credentials", ".config/heroku": "cloud credentials",
    ".fly/config.yml": "cloud credentials", ".netlify/config.json": "cloud credentials",
    ".mc/config.json": "cloud credentials", ".dbt/profiles.yml": "database passwords", ".subversion/auth": "passwords",
    ".ansible/vault": "passwords", ".ethereum/keystore": "wallets", ".config/pip/pip.conf": "registry credentials",
    ".pip/pip.conf": "registry credentials", ".nuget/nuget.config": "registry credentials", "etc/wireguard": "private keys",
    "etc/networkmanager/system-connections": "passwords", "etc/kubernetes": "Kubernetes credentials",
    "var/lib/kubelet": "Kubernetes credentials", "var/lib/docker": "the files of all containers",
    "etc/shadow": "password hashes", "etc/gshadow": "password hashes", "etc/passwd": "the users of this machine",
    "etc/ssl/private": "private keys", "run/secrets": "mounted secrets", "system32/config/sam": "password hashes",
    ".cargo/credentials": CREDENTIALS, ".cargo/credentials.toml": CREDENTIALS, ".gem/credentials": CREDENTIALS,
    ".bundle/config": REGISTRY, ".composer/auth.json": REGISTRY, ".config/composer/auth.json": REGISTRY,
    ".config/containers/auth.json": REGISTRY, "run/containers": REGISTRY, ".config/helm": REGISTRY,
    ".config/pypoetry/auth.toml": REGISTRY, ".config/uv/credentials.toml": REGISTRY, ".ivy2/.credentials": REGISTRY,
    ".sbt/.credentials": REGISTRY, ".hex/hex.config": REGISTRY, ".cache/huggingface/token": "a token",
    ".config/configstore": CREDENTIALS, ".config/stripe": CREDENTIALS, ".config/github-copilot": "GitHub credentials",
    ".config/glab-cli": "GitLab credentials", ".config/solana": "wallets", ".config/ngrok": CREDENTIALS,
    ".config/scw": CLOUD, ".config/linode-cli": CLOUD, ".config/exoscale": CLOUD, ".config/openstack": CLOUD,
    ".bluemix/config.json": CLOUD, ".railway/config.json": CLOUD, ".supabase/access-token": CLOUD,
    ".wrangler/config": CLOUD, ".rancher/cli2.json": "Kubernetes credentials", "etc/rancher": "Kubernetes credentials",
    ".claude/.credentials.json": CREDENTIALS, ".codex/auth.json": CREDENTIALS, ".gemini/oauth_creds.json": CREDENTIALS,
    ".vscode/sftp.json": "passwords", ".idea/webservers.xml": "passwords", ".idea/datasources.local.xml": "passwords",
    ".thunderbird": "a mail program's passwords", ".config/slack": "sessions", ".config/discord": "sessions",
    "etc/mysql/debian.cnf": "passwords", "etc/security/opasswd": "password hashes", "etc/ppp": "passwords",
    "etc/ipsec.secrets": "private keys", "etc/ipsec.d/private": "private keys", "etc/openvpn": "private keys",
    "etc/krb5.keytab": "Kerberos keys", "etc/wpa_supplicant": "passwords", "var/lib/jenkins/secrets": "secrets",
    "config/database.yml": "database passwords", "app/config/parameters.yml": "database passwords",
    "app/etc/env.php": "passwords", "app/etc/local.xml": "passwords", "sites/default/settings.php": "database passwords",
    "system32/config": "password hashes", "windows/panther": "passwords", "microsoft/credentials": CREDENTIALS,
    "microsoft/protect": "private keys",
}  # fmt: skip
"""The same, where the name of the folder alone would say too little."""

NAMES = {
    ".netrc": "passwords", "_netrc": "passwords", ".pgpass": "passwords", "pgpass.conf": "passwords",
    ".my.cnf": "passwords", ".mylogin.cnf": "passwords", ".git-credentials": "passwords", "wp-config.php": "passwords",
    ".npmrc": "registry credentials", ".pypirc": "registry credentials", ".yarnrc": "registry credentials",
    ".dockercfg": "registry credentials", ".dockerconfigjson": "registry credentials", ".htpasswd": "password hashes",
    "shadow": "password hashes", "shadow-": "password hashes", "gshadow": "password hashes", "gshadow-": "password hashes",
    "master.passwd": "password hashes", "ntds.dit": "password hashes", "passwd": "the users of this machine",
    "passwd-": "the users of this machine", "sudoers": "who may become root", ".s3cfg": "cloud credentials",
    ".boto": "cloud credentials", "kubeconfig": "Kubernetes credentials", ".vault-token": "a token", ".token": "a token",
    "token": "a token", "token.json": "a token", "token.txt": "a token", "auth.json": "credentials",
    "logins.json": "a browser's passwords", "key3.db": "a browser's passwords", "key4.db": "a browser's passwords",
    "login data": "a browser's passwords", "cookies.sqlite": "a browser's sessions",
    "terraform.tfstate": "what Terraform knows, with secrets", ".terraformrc": "credentials",
    ".flaskenv": "settings with secrets", ".dev.vars": "settings with secrets", ".renviron": "settings with secrets",
    "local.settings.json": "settings with secrets", "fish_history": TYPED, ".zhistory": TYPED, ".histfile": TYPED,
    "consolehost_history.txt": TYPED, ".lesshst": TYPED, ".viminfo": "what was edited",
    ".xauthority": "the key to a screen", ".vault_pass": "passwords", ".vault_pass.txt": "passwords",
    ".vault_password": "passwords", ".htdigest": "password hashes", ".databrickscfg": "cloud credentials",
    "kaggle.json": "credentials", "rclone.conf": "cloud credentials", ".msmtprc": "passwords", ".wgetrc": "passwords",
    ".curlrc": "passwords", ".claude.json": "credentials", "wallet.dat": "wallets", "secring.gpg": "private keys",
    "docker.sock": "the control of all containers", "podman.sock": "the control of all containers",
    "containerd.sock": "the control of all containers", ".credentials": CREDENTIALS, ".credentials.json": CREDENTIALS,
    ".authinfo": "passwords", ".authinfo.gpg": "passwords", ".yarnrc.yml": REGISTRY, "pip.conf": REGISTRY,
    "pip.ini": REGISTRY, "nuget.config": REGISTRY, ".condarc": REGISTRY, "credentials.tfrc.json": CREDENTIALS,
    "terraform.rc": CREDENTIALS, "application_default_credentials.json": CLOUD, "access_tokens.db": CLOUD,
    "credentials.db": CLOUD, "legacy_credentials": CLOUD, ".tugboat": CLOUD, "heroku.json": CLOUD, ".vultr-cli.yaml": CLOUD,
    ".linode-cli": CLOUD, "clouds.yaml": CLOUD, "openrc.sh": CLOUD, "accesskeys.csv": CLOUD, "rootkey.csv": CLOUD,
    ".passwd-s3fs": CLOUD, "passwd-s3fs": CLOUD, ".sentryclirc": "a token", ".wakatime.cfg": "a token",
    ".consul-token": "a token", ".nomad-token": "a token", "ngrok.yml": "a token", "oauth_creds.json": CREDENTIALS,
    ".ftpconfig": "passwords", "sftp-config.json": "passwords", ".remote-sync.json": "passwords",
    "filezilla.xml": "passwords", "recentservers.xml": "passwords", "sitemanager.xml": "passwords",
    "winscp.ini": "passwords", "deployment-config.json": "passwords", "proftpdpasswd": "password hashes",
    "ventrilo_srv.ini": "passwords", ".smbcredentials": "passwords", ".smbcred": "passwords", ".cifs": "passwords",
    ".esmtprc": "passwords", ".fetchmailrc": "passwords", ".getmailrc": "passwords", ".mbsyncrc": "passwords",
    ".offlineimaprc": "passwords", ".muttrc": "passwords", "sasl_passwd": "passwords", "chap-secrets": "passwords",
    "pap-secrets": "passwords", "wpa_supplicant.conf": "passwords", "ipsec.secrets": "private keys",
    ".rhosts": "who may log in", ".shosts": "who may log in", "hosts.equiv": "who may log in",
    ".erlang.cookie": "the key to a cluster", ".mongorc.js": "database passwords", ".dbshell": TYPED,
    "robomongo.json": "database passwords", "mongoid.yml": "database passwords",
    "credentials-config.json": "database passwords", ".dbeaver-data-sources.xml": "database passwords",
    "datasources.local.xml": "database passwords", "debian.cnf": "database passwords", "cqlshrc": "database passwords",
    "opasswd": "password hashes", "localsettings.php": "passwords", "unattend.xml": "passwords", "sysprep.inf": "passwords",
    "sysprep.xml": "passwords", "signons.sqlite": "a browser's passwords", "cert9.db": "a browser's keys",
    "web data": "a browser's passwords", "otr.private_key": "private keys", "cwallet.sso": "wallets",
    "ewallet.p12": "wallets", "secret_token.rb": "the key to sessions", ".iceauthority": "the key to a screen",
    "jenkins.plugins.publish_over_ssh.bapsshpublisherplugin.xml": "passwords", ".netrc.gpg": "passwords",
    "etherwallet.json": "wallets",
}  # fmt: skip

SUGGESTS = {"token", "token.json", "token.txt", "auth.json", "shadow", "passwd", "sudoers"}
"""Those of the names that folders and addresses of an API have as well."""

SUFFIXES = {
    ".pem": "private keys", ".key": "private keys", ".p12": "private keys", ".pfx": "private keys", ".p8": "private keys",
    ".pkcs12": "private keys", ".pk8": "private keys", ".ppk": "private keys", ".jks": "private keys",
    ".keystore": "private keys", ".agekey": "private keys", ".ovpn": "private keys", ".keytab": "Kerberos keys",
    ".kdbx": "passwords", ".kdb": "passwords", ".tfvars": "settings with secrets", ".keychain": "passwords",
    ".keychain-db": "passwords", ".agilekeychain": "passwords", ".1pif": "passwords", ".1pux": "passwords",
    ".opvault": "passwords", ".psafe3": "passwords", ".kwallet": "passwords", ".kwl": "passwords", ".pkcs8": "private keys",
    ".bek": "private keys", ".fve": "private keys", ".gpgkey": "private keys", ".tblk": "private keys",
    ".jceks": "private keys", ".bcfks": "private keys", ".rdp": "passwords", ".cscfg": CLOUD, ".publishsettings": CLOUD,
    ".azurepubxml": CLOUD, ".ccache": "Kerberos keys", ".tfstate": "what Terraform knows, with secrets",
}  # fmt: skip
