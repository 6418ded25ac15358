"""${message}.

Revision ${up_revision}, after ${down_revision or "nothing"}.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

PLAIN = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Apply."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Take back."""
    ${downgrades if downgrades else "pass"}
