"""`python -m clifftop`: the same as the `clifftop` command."""

from clifftop.cli.main import main

if __name__ == "__main__":
    main()
