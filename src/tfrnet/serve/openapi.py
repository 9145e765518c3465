"""Writing the description of the service to a file: `python -m tfrnet.serve.openapi FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tfrnet.serve.app import openapi_document

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(openapi_document(), indent=1) + "\n")
