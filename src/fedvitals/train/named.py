"""The engine, at its door: a user's own function, named in a job as `module:function`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from fedvitals.errors import JobError


def named_function(text: str, key: str) -> Callable[..., Any]:
    """The function that `module:function` names; the working folder is looked in, as `python -m` does."""
    module_name, _, name = text.partition(":")
    wrong = f"{key} = {text!r}"
    if not module_name or not name.isidentifier():
        raise JobError(f"{wrong} should read module:function, for example mypackage.mymodule:make")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise JobError(f"{wrong}: {error}; it is looked for in {os.getcwd()} and where Python looks") from error
    except Exception as error:
        raise JobError(f"{wrong}: importing {module_name} gave {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        there = "is not a function" if hasattr(module, name) else "is not in that module"
        raise JobError(f"{wrong}: {name!r} {there} ({module.__file__})")
    found: Callable[..., Any] = function
    return found
