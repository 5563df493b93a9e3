"""Makes the scenario importable: for the tests here, and for the processes of the crash kit, which import it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
