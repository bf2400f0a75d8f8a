"""What a command of another distribution is made of, each name once."""

from mild.cli.console import INTERRUPTED as INTERRUPTED
from mild.cli.console import emit as emit
from mild.cli.console import fixed as fixed
from mild.cli.console import note as note
from mild.cli.console import percent as percent
from mild.cli.console import print_facts as print_facts
from mild.cli.console import print_sentence as print_sentence
from mild.cli.console import print_table as print_table
from mild.cli.console import progress_bar as progress_bar
from mild.cli.console import shown_moment as shown_moment
from mild.cli.extensions import CommandGroup as CommandGroup
from mild.cli.options import AsJson as AsJson
from mild.cli.options import Confidence as Confidence
from mild.cli.options import Overwrite as Overwrite
from mild.cli.options import RandomState as RandomState
from mild.cli.options import RouterArgument as RouterArgument
from mild.cli.options import RouterFolder as RouterFolder
from mild.cli.options import takes_options as takes_options
from mild.cli.options import without_none as without_none

def main() -> None: ...
