"""How the elements of a constant may be kept in memory, each way in one file: the values of a constant decide which.

    encoding     what all of them are
    int24        floats in 24 bits
    sparse       single elements without most zeros, each with its place
    blocks       groups of neighbours that are not zero for some lines
    picks        steps in which each line picks a few elements of a window; combined: columns packed without conflicts
    two_of_four  two of each four neighbours
    codebook     indices into few values
    quantised    whole numbers of few bits, in blocks that have a scale each
    low_rank     a matrix as a product of two
    zeros        how many zeros there are, and how they lie
    finding      what is told of the values of weights
    found        what was found in the values of an array, looked for once

Nothing here knows a noun of the compiler (`compiler.ir`): a constant is a numpy array.
"""

from __future__ import annotations

import numpy as np

from compiler.encodings.blocks import Blocks
from compiler.encodings.codebook import Codebook, SharedValues
from compiler.encodings.encoding import Encoding, Encodings, Use
from compiler.encodings.finding import Finding, Reported
from compiler.encodings.found import Found
from compiler.encodings.int24 import Int24
from compiler.encodings.low_rank import Factors
from compiler.encodings.picks import Picks
from compiler.encodings.quantised import Quantised, QuantisedWeights
from compiler.encodings.sparse import Sparse
from compiler.encodings.two_of_four import TwoOfFour
from compiler.encodings.zeros import Zeros

ENCODINGS: tuple[type[Encoding], ...] = (Int24, Sparse, TwoOfFour, Blocks, Picks, Codebook, Quantised)
"""All but DENSE. Workloads name them in this order, and keys of records are hashed from it."""
FINDINGS: tuple[type[Finding], ...] = (Zeros, Factors, SharedValues, QuantisedWeights)
"""What preflight tells of weights, in this order."""
REPORTED: tuple[type[Reported], ...] = (Zeros, SharedValues, QuantisedWeights)
"""What reports tell."""
FOUND: Found[Encodings] = Found()


def find(constant: np.ndarray, use: Use) -> Encodings:
    """All in which a constant may be kept for a use, besides DENSE."""
    return tuple(one for kind in ENCODINGS for one in kind.find(constant, use))


def find_once(constant: np.ndarray, use: Use) -> Encodings:
    """The same of a constant that nobody changes: its values are looked at once for each use."""
    return FOUND.of(constant, use.value, lambda array: find(array, use))


def is_word(text: str) -> bool:
    """Whether a word in the text of a workload stands for an encoding, by its beginning."""
    return any(text == kind.begins or text.startswith(kind.words("")) for kind in ENCODINGS)


def read(word: str) -> Encoding:
    """The encoding that such a word stands for. Raises ValueError where there is none."""
    return next(kind for kind in ENCODINGS if word.startswith(kind.begins)).read(word)
