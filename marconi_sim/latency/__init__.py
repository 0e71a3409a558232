"""Times to the first token: measured tables, and models fitted to measurements."""

DEFAULT_TABLE = "jamba-1.5-mini"
FORMS = ("linear", "interpolated")  # how a table is read: `LatencyTable.seconds_of` says
