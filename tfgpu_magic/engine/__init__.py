"""The engine: `engine` makes every plan, `enforcement` enforces it, and `every_framework` has the others' part of both.

Who wants a plan calls, of `engine`: `plan` or `apply` for words of now, `foresee` for after a restart, `sketch` for a
program that starts anew, `current` for what is in force or waits, `decided` or `waiting` for that with the GPUs as they
are now, and `inherited` for a process that this one starts. Who has one enforced calls, of `enforcement`: `enforce` for
a plan, `enforce_configured` for what nobody has asked, and `enforce_again` where the ceiling was lowered.
"""
