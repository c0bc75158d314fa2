"""The verb `run` alone, with the error handling of the command line's main()."""

import sys

from hangdoctor.cli.run import command
from hangdoctor.errors import HangdoctorError

try:
    command(prog_name="hangdoctor run")
except HangdoctorError as error:
    print(error, error.help, sep="\n", file=sys.stderr)
    sys.exit(error.exit_code)
