"""Makes the environments of peers: one for each, in `.venv/peers`, with what its file says that it needs.

python bench/peers/install.py              # all of them
python bench/peers/install.py agno aaa
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from amoxi_py.testing.bench.peer import ENVIRONMENTS, Peer, read_peer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def install(peer: Peer) -> bool:
    """Make the environment of a peer anew; return whether that succeeded."""
    folder = Path(peer.python).parents[1]
    making = [[sys.executable, "-m", "venv", "--clear", str(folder)]]
    if peer.dependencies:
        making.append([peer.python, "-m", "pip", "install", "--quiet", *peer.dependencies])
    if peer.npm:
        making.append(["npm", "install", "--silent", "--no-save", "--prefix", str(folder), *peer.npm])
    for command in making:
        if subprocess.run(command, check=False).returncode:
            print(f"{peer.name}: not installed", file=sys.stderr)
            return False
    print(f"{peer.name}: installed for {peer.python}")
    return True


def main() -> None:
    """Install those that are named, or all."""
    files = {file.stem: file for file in sorted(HERE.glob("*.py")) if file.name != Path(__file__).name}
    wanted = sys.argv[1:] or [*files]
    if unknown := [name for name in wanted if name not in files]:
        sys.exit(f"there is no peer {', '.join(unknown)}; there are {', '.join(files)}")
    done = [install(read_peer(files[name], ROOT / ENVIRONMENTS)) for name in wanted]
    sys.exit(not all(done))


if __name__ == "__main__":
    main()
