"""When a tendril looks up unasked: signals in, reasons to wake out, and no model call on the way.

Three layers. The lowest (`neurons`) measures each channel and reports what has changed; the middle
one (`aggregate`, `attention`) gathers five minutes of that and decides whether it is reason enough;
the highest is a turn of the model, which runs beside the heartbeat (`heart`).
"""
