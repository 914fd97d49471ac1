"""The sandbox: where code that nobody vouches for is run.

    engine           what the rest of Toolgate is given: run this Python, this TypeScript, this command
    results          what comes of a run, and the errors that a caller gets of it
    runtimes/        one way of running each: Monty, Python, Deno, shell
    pool             workers that are started before they are needed, and used once
    worker_protocol  what host and worker say to each other
    jail             what a jail is given, what it gives, and what it must enforce
    jails/           what holds a process: bubblewrap, namespaces, landlock, docker
    inside/          what runs in the jail, before the untrusted code and around it. Standard library only
    self_check       attempts that any jail must stop: a few before it is relied on, and the suite of all of them
    workspaces       the folder that a call works in; workspace_scan: what of it the jail protects
    intake           decides which changes of a program reach the workspace, by intake_rules; quarantine keeps the others
    custom/          tools that are files of YAML, with code that runs here

The engine knows nothing of tools, policy or calls: whoever uses it says what the code may ask the host for.
"""
