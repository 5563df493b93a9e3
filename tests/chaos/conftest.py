"""Makes the parts of the chaos importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
