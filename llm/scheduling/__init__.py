"""Background jobs, cron schedules, natural-language times."""
