"""Background jobs, cron schedules."""
