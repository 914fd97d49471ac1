"""What `toolgate tools new` writes: a custom tool in each runtime that works as it stands, with comments for its author."""

import orjson

from toolgate.model import Runtime
from toolgate.yamltext import scalar

HEAD_LINES = """\
# A custom tool, which Toolgate loads from here. After an edit, run `toolgate trust`: then it is loaded again.
name: {name}
description: Greet somebody by name.  # what a model reads when it chooses a tool

schema:  # JSON Schema of the arguments
  type: object
  properties:
    name:
      type: string
      minLength: 1
      description: Who is greeted.
    loud:
      type: boolean
      description: Whether to shout.
  required: [name]
  additionalProperties: false

runtime: {runtime}

permissions:
  riskLevel: low  # low: read_only, medium: write, high or critical: execute, which asks before each call
  # autoAccept: false  # ask before each call, whatever the risk
  # allowlist: ["npm test"]  # commands that it may run, word by word

"""

TYPESCRIPT = """\
code: |
  interface Args {
    name: string;
    loud?: boolean;
  }

  // context has config, conversation, logger, permissions.check, platform.fs and platform.executor.
  // What it asks of the platform is a call of its own: checked, asked about and recorded like any other.
  export async function execute(args: Args, context: ToolContext): Promise<string> {
    context.logger.info(`greeting ${args.name}`);
    const greeting = `Hello, ${args.name}!`;
    return args.loud ? greeting.toUpperCase() : greeting;
  }
"""

NODE = """\
code: |
  // context has config, conversation, logger, permissions.check, platform.fs and platform.executor.
  // What it asks of the platform is a call of its own: checked, asked about and recorded like any other.
  export async function execute(args, context) {
    context.logger.info(`greeting ${args.name}`);
    const greeting = `Hello, ${args.name}!`;
    return args.loud ? greeting.toUpperCase() : greeting;
  }
"""

PYTHON = """\
code: |
  # context has config, conversation, logger, permissions.check, platform.fs and platform.executor.
  # What it asks of the platform is a call of its own: checked, asked about and recorded like any other.
  # `async def` works as well; then these methods are awaited.
  def execute(args, context):
      context.logger.info(f"greeting {args['name']}")
      greeting = f"Hello, {args['name']}!"
      return greeting.upper() if args.get("loud") else greeting
"""

EXAMPLE_LINES = """
examples:  # run by `toolgate tools test {name}`
  - name: a greeting
    arguments: {{name: Ada}}
    output: Hello, Ada!
  - name: a loud one
    arguments: {{name: Ada, loud: true}}
    output: HELLO, ADA!
  - name: somebody has to be greeted
    arguments: {{}}
    error: VALIDATION_ERROR
"""

CODE_LINES: dict[Runtime, str] = {"typescript": TYPESCRIPT, "node": NODE, "python": PYTHON}


def template(name: str, runtime: Runtime) -> bytes:
    """The file of a new tool."""
    written = name if scalar(name) == name else orjson.dumps(name).decode()  # a tool may be called true
    text = HEAD_LINES.format(name=written, runtime=runtime) + CODE_LINES[runtime] + EXAMPLE_LINES.format(name=name)
    return text.encode()
