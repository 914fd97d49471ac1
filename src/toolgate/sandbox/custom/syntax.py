"""Python that nobody vouches for, compiled to see whether it can be: it is not run."""

import symtable
import warnings

from toolgate.errors import ToolgateError


class CodeFault(ToolgateError):
    """The code can't be compiled."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def check_python(code: str, name: str) -> bool:
    """Whether the code gives a meaning to a name; CodeFault says where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no reason to refuse it
            compile(code, "code", "exec", dont_inherit=True)
            symbols = symtable.symtable(code, "code", "exec").get_symbols()
    except SyntaxError as error:
        raise CodeFault(error.msg, error.lineno, error.offset) from None
    except (MemoryError, RecursionError):
        raise CodeFault("it is nested too deeply to be compiled") from None
    except (ValueError, OverflowError) as error:
        raise CodeFault(f"it can't be compiled: {error}") from None
    return any(symbol.get_name() == name and (symbol.is_assigned() or symbol.is_imported()) for symbol in symbols)
