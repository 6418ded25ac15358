"""How a measuring command ends: its exit status, and what is said where it cannot go on."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from bench.public import PublicModelError
from bench.zoo import NoSuchNetwork
from compiler.errors import TilewrightError
from tilewright.errors import ClientError

INTERRUPTED = 130


def ended(measure: Callable[[], int], parser: argparse.ArgumentParser, console: Console) -> int:
    """The exit status of `measure`: 2 for wrong arguments, 1 for what the compiler refuses, INTERRUPTED.

    What is wrong and its fix are printed on the console. A name that no network has ends the process as other wrong
    arguments do.
    """
    try:
        return measure()
    except (NoSuchNetwork, PublicModelError) as error:
        parser.error(str(error))
    except (ClientError, TilewrightError) as error:
        console.print(f"{error.message}\nFix: {error.fix}", markup=False, soft_wrap=True)
        return error.exit_status if isinstance(error, ClientError) else 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED
