"""`python -m endtask`."""

from endtask.cli.main import main

if __name__ == "__main__":
    main()
