"""The tools that ship with Toolgate, as promised (BUILTIN-1 to BUILTIN-5), and those of them that are second names."""

BUILTIN = frozenset(
    {
        # BUILTIN-1
        "calculator", "datetime", "deep_reasoning", "json_parser", "text_transform",
        # BUILTIN-3
        "read_file", "write_file", "list_directory", "create_directory", "parse_typescript", "analyze_dependencies",
        "validate_json", "type_check", "rest_api_call", "supabase_query", "stripe_create_payment", "sendgrid_send_email",
        "vercel_deploy", "npm_install", "git_commit", "execute_command", "docker_run",
        # BUILTIN-4
        "memory_load", "memory_save", "memory_delete", "memory_forget", "echo", "timestamp", "code_execute", "file_read",
        "http_fetch", "canvas_append", "document_ingest", "response", "notify_user", "search_engine", "document_query",
        "a2a_chat", "behaviour_adjustment", "scheduler", "call_subordinate",
        # BUILTIN-5
        "file_operations", "file_search", "bash_execution", "git",
        # beside vercel_deploy, with a credential of its own; and programs that call tools
        "netlify_deploy", "run_program",
        # tools that find and call other tools
        "search_tools", "describe_tool", "call_tool",
        # tools that agents add at run time (REG-5)
        "register_tool", "unregister_tool",
        # a turn of a language model, which no list for models shows
        "ask_model",
    }
)  # fmt: skip
WORKFLOWS = frozenset({"send_email", "create_calendar_event", "send_notification"})
"""Tools that are workflows of an n8n server (WF-3)."""
SHIPPED = BUILTIN | WORKFLOWS
INTERNAL = frozenset({"ask_model"})
"""Tools that only Toolgate's own code calls."""
ALIASES = {"file_read": "read_file", "git_commit": "git", "bash_execution": "execute_command"}
"""Second names, and the tools that models are shown instead."""
