"""Alembic migrations, one file each; the revision is a number of four digits, one higher than the last."""
