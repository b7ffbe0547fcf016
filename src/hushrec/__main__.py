"""`python -m hushrec` is the command `hushrec`, also where its folder is on no path."""

if __name__ == "__main__":
    import _signal  # type: ignore[import-not-found]  # as in bin/hushrec

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from hushrec.cli.app import main

    main()
