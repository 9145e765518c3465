"""`python -m tfrnet` is the command line too."""

from tfrnet.cli.main import main

main()
