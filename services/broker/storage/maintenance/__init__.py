"""Work on the journal beside its use: deletion, compaction, summaries, backups."""
