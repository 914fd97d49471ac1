"""Work in the background: calls and other jobs that are queued, run by whichever worker takes them, and survive restarts.

`queue` takes jobs in and says what became of them, `runner` runs one, `worker` decides which one and when (the port
`JobEngine`), `handlers` are what is done for a job of a type, `tool_calls` is the type that calls a tool. `schedules` are
jobs that are queued at the times of a `cron` line; `timer` queues them.
"""
