from __future__ import annotations

import json
import re

from compiler.legalise.rules import RULES as LEGALISATION
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.rules import RULES
from tests.docs.rules_page import PAGE, SEEN, WRITTEN_BY, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(json.loads(SEEN.read_text())), "run `python -m tests.docs.rules_page`"


def test_every_rule_and_choice_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:exact|reassociates|approximate)", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(rule.name for rule in (*RULES, *CHOICES, *LEGALISATION))


def test_of_a_rule_that_applies_in_no_network_is_told_what_writes_its_left_side() -> None:
    seen = json.loads(SEEN.read_text())
    assert {rule.name for rule in (*RULES, *CHOICES)} == set(seen), "run `python -m tests.docs.rules_page --seen`"
    reported = [name for names in WRITTEN_BY.values() for name in names]
    assert sorted(reported) == sorted(name for name, models in seen.items() if not models)
