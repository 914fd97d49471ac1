"""The sandbox: where code that nobody vouches for is run.

    engine      what the rest of Toolgate is given: run this Python, this TypeScript, this command
    lanes/      one way of running each: Monty, Python, Deno, shell
    pool        workers that are started before they are needed, and used once
    talk        what host and worker say to each other
    jails/      what holds a process: bubblewrap, namespaces, landlock, docker; all give a `port.Box`
    inside/     what runs in the jail, before the untrusted code and around it. Standard library only
    self_check  what any jail must stop

It knows nothing of tools, policy or calls: whoever uses it says what the code may ask the host for.
"""
