"""`python -m merganser`: the command line."""

from merganser.cli.main import main

if __name__ == "__main__":
    main()
