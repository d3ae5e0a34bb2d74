"""Tailrace carries every committed write to everything that depends on it."""
