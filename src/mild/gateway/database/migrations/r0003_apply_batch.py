"""PostgreSQL: a function that changes the rows of a batch, or none of them.

Gateways do not call it any more; it stays for those that were started before an upgrade.
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
  FOR ended IN SELECT row->>0 FROM json_array_elements(batch->'ended') AS row LOOP
    DELETE FROM mild.reservations WHERE id = ended;
    IF NOT FOUND THEN RAISE check_violation; END IF;
  END LOOP;
  INSERT INTO mild.reservations (id, accounts, amount, deadline)
    SELECT row->>0, row->>1, CAST(row->>2 AS bigint), clock + CAST(row->>3 AS double precision)
    FROM json_array_elements(batch->'created') AS row;
  FOR change IN
    SELECT row->>0 AS scope, row->>1 AS period, CAST(row->>2 AS bigint) AS spent,
      CAST(row->>3 AS bigint) AS held, CAST(row->>4 AS bigint) AS lost,
      CAST(row->>5 AS bigint) AS budget
    FROM json_array_elements(batch->'changes') AS row
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
