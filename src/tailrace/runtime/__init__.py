"""What every role needs in order to run: time, retries, metrics, logs, configuration, threads, processes, SQLite.

Nothing here knows what Tailrace carries. Each module stands alone and is imported by its name, so that a process loads
only what it uses.
"""

__all__ = [
    "backoff",
    "clock",
    "config",
    "config_schema",
    "health",
    "logging",
    "metrics",
    "processes",
    "secrets",
    "sqlite",
    "tasks",
    "units",
]
