"""The sandbox: where code that nobody vouches for is run.

    engine           what the rest of Toolgate is given: run this Python, this TypeScript, this command
    results          what comes of a run, and the errors that a caller gets of it
    runtimes/        one way of running each: Monty, Python, Deno, shell
    pool             workers that are started before they are needed, and used once
    worker_protocol  what host and worker say to each other
    jails/           what holds a process: bubblewrap, namespaces, landlock, docker; all give a `port.JailedProcess`
    inside/          what runs in the jail, before the untrusted code and around it. Standard library only
    self_check       what any jail must stop
    workspaces       the folder that a call works in; workspace_scan: what of it the jail protects
    intake           which changes of a program reach the workspace, by the patterns of bring_in; quarantine: the others
    custom/          tools that are files of YAML, with code that runs here

The engine knows nothing of tools, policy or calls: whoever uses it says what the code may ask the host for.
"""
