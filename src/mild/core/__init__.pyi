"""What the gateway and others may use of the mathematics, each name once."""

from mild.core.answers import Answer as Answer
from mild.core.answers import canonical_answer as canonical_answer
from mild.core.answers import detect_kind as detect_kind
from mild.core.arrays import BoolArray as BoolArray
from mild.core.arrays import FloatArray as FloatArray
from mild.core.arrays import IntArray as IntArray
from mild.core.arrays import as_python as as_python
from mild.core.arrays import check_integer as check_integer
from mild.core.arrays import check_share as check_share
from mild.core.arrays import first_columns as first_columns
from mild.core.arrays import invalid as invalid
from mild.core.choice_parsing import LETTERS as LETTERS
from mild.core.choice_parsing import extract_letter as extract_letter
from mild.core.long_texts import abridge as abridge
from mild.core.long_texts import shorten as shorten
from mild.core.number_parsing import extract_number as extract_number
from mild.core.number_parsing import is_number_text as is_number_text
from mild.core.number_parsing import numbers_in as numbers_in
from mild.core.number_parsing import same_number as same_number
from mild.defaults import TARGET_PROBABILITY as TARGET_PROBABILITY
from mild.money import decimals as decimals
