"""Background jobs, cron schedules, times in plain words."""
