"""What `toolgate init` writes: the settings that people change first, one to a line, all of them comments."""

TEMPLATE = """\
# Settings of Toolgate for this folder and those below it. Each setting is a comment: remove its # to set it,
# then run `toolgate trust`, because settings are obeyed only as you last saw them.
# Relative paths lead from this file. All settings, and variables for them: docs/reference/settings.md

# Where data is kept: database, audit log, custom tools. Default: .toolgate
#home: .toolgate

# The database. Default: SQLite in home. For example PostgreSQL:
#database_url: postgresql://toolgate:password@localhost/toolgate

# Shares limits, circuit breakers and caches between processes. Default: none. For example:
#redis_url: redis://localhost:6379/0

# Folders of Python files with tools. Default: tools in home. For example:
#python_tools: [tools]

# Seconds that a tool without a timeout of its own may take. Default: 60
#max_execution_time: 60

# Tools whose tier is raised, and with it what a call needs. Default: none. For example:
#tier_overrides: {write_file: execute}

# More names of keys whose values are masked in records and outputs. Default: none. For example:
#sensitive_keys: [iban, badge_no]

# How often calls may be made. Default: as tools say. For example:
#rate_limits: [{by: [user], per_minute: 60}]

# Count calls for Prometheus (toolgate[telemetry]). Default: false
#metrics: false

tools:
  # Tools that nobody may call, by name. Default: all are enabled. For example:
  #docker_run: {enabled: false}

limits:
  # Characters of one text in an output; what is cut can be fetched for a while. Default: 10000
  #output_string: 10000
  # Items of one list in an output. Default: 100
  #output_items: 100
  # Calls of one tenant that may run at once. Default: without limit. For example:
  #tenant_concurrency: 20

approvals:
  # Seconds until an approval that is not given, or not used, is void. Default: 3600
  #expire_seconds: 3600
  # Whether people approve their own calls: never, local (the person at this machine) or always. Default: local
  #asker_may_answer: local
  # Who must agree, by tenant and tool. Default: anybody who may. For example:
  #rules: [{tool: deploy, approvers: [ann, bob], quorum: 2}]

budgets:
  # Dollars that each user may spend a day on tools of tier external_api. Default: 10
  #external_api_daily: 10
  # Where days and months begin. Default: UTC
  #timezone: UTC

policy:
  # A Rego file of package soma.policy that decides who may call what. Default: the shipped one. For example:
  #file: policy.rego

commands:
  # Beginnings of commands that execute_command may run. Default: six, such as npm run. For example:
  #allow: [git status, npm run, make test]

paths:
  # More files that no tool may open. Default: those that are known to hold secrets. For example:
  #sensitive: ['*.sqlite', /srv/private/*]

secrets:
  # Which tools a secret may be given to, and for which tenant. Default: none. For example:
  #use: {API_TOKEN: [{tool: http_request, tenant: default}]}

sandbox:
  # What holds code that nobody vouches for: auto, bubblewrap, namespaces, landlock or docker. Default: auto
  #backend: auto
  # Seconds that one run may take. Default: 30
  #seconds: 30
  # Megabytes of memory for one run. Default: 256
  #memory_mb: 256

mcp:
  # Whether MCP servers are used. Default: true
  #enabled: true

servers:
  # MCP servers whose tools are offered once they are accepted. Default: none. For example:
  #files: {preset: filesystem, read: [docs]}

serve:
  # The address that `toolgate serve` listens on. Default: 127.0.0.1, this machine alone
  #host: 127.0.0.1
  # Its port. Default: 8700
  #port: 8700
"""
