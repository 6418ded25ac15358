from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from service.http.admission.descriptors import RESERVED

ROOT = Path(__file__).parents[4]
PROGRAM = """
import resource
from service.http.admission import descriptors
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, min(hard, 2000)))
print(descriptors.for_connections())
descriptors.raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), descriptors.for_connections())
"""


def test_the_limit_is_raised_and_some_descriptors_are_kept_for_what_is_no_connection() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    before, after = said.splitlines()
    assert before == "150", "half of a limit that is lower than what is kept"
    soft, hard, connections = map(int, after.split())
    assert soft == hard
    assert connections == hard - RESERVED
