"""What the embedded broker keeps on disk: `store` (durable messages and definitions), `paging` (what may die with the
process), on `journal` (an append-only segmented log), on `files` (the few file operations they need)."""
