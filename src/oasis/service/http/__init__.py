"""What holds for every request: limits, hosts, problems, logs, counters."""
