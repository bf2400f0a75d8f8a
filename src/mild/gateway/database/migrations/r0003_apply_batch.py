"""PostgreSQL: a function for a batch in which everything is granted.

It keeps the plans of its statements, which take the server longer to make than to run, and works behind
poolers, which keep no prepared statements.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

_FUNCTION = """
CREATE FUNCTION mild.apply_batch(batch json, clock double precision)
RETURNS SETOF mild.accounts LANGUAGE plpgsql AS $$
DECLARE
  ended text;
  change record;
  changed mild.accounts;
BEGIN
  FOR ended IN SELECT json_array_elements_text(batch->'ended') LOOP
    DELETE FROM mild.reservations WHERE id = ended;
    IF NOT FOUND THEN RAISE check_violation; END IF;
  END LOOP;
  INSERT INTO mild.reservations (id, accounts, amount, deadline)
    SELECT id, accounts, amount, clock + seconds FROM json_to_recordset(batch->'created')
    AS created(id text, accounts text, amount bigint, seconds double precision);
  FOR change IN SELECT * FROM json_to_recordset(batch->'changes')
    AS given(scope text, period text, spent bigint, held bigint, lost bigint, budget bigint)
  LOOP
    UPDATE mild.accounts
      SET spent = spent + change.spent, held = held + change.held, lost = lost + change.lost
      WHERE scope = change.scope AND period = change.period
      AND spent + held + change.spent + change.held <= change.budget
      RETURNING * INTO changed;
    IF NOT FOUND THEN RAISE check_violation; END IF;
    RETURN NEXT changed;
  END LOOP;
END $$
"""


def upgrade() -> None:
    """Create the function."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_FUNCTION)
