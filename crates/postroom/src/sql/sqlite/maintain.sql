-- SQLite's archive needs no upkeep beyond fresh statistics.
PRAGMA optimize
