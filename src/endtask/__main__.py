"""`python -m endtask`."""

from endtask.cli.start import main

if __name__ == "__main__":
    main()
