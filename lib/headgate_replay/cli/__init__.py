"""The commands that replay traces; entry points name them, so that `headgate` lists them with its own."""
