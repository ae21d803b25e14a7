"""python -m clearhead."""

from clearhead.cli import main

main()
