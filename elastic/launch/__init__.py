"""Who starts agents on hosts; nothing else knows launchers."""
