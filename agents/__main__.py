"""``python -m agents``: the same program as the ``hangdoctor`` command."""

from hangdoctor.cli.main import main

main()
