"""What runs is what the file says: `core/`'s bytecode is trusted by its source's content, not by its time and size.

Python's own bytecode cache looks at the source's length and at the whole second of its last change, so an edit of the
same length within a second runs the old code. Here a file of bytecode holds the hash of its source, in the form of
PEP 552 that Python's own loader checks too.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

_BY_CONTENT = importlib.util.MAGIC_NUMBER + (0b11).to_bytes(4, "little")


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path)
        header = _BY_CONTENT + importlib.util.source_hash(source)
        cached = importlib.util.cache_from_source(self.path)
        try:
            found = self.get_data(cached)
            code = marshal.loads(found[len(header) :]) if found.startswith(header) else None
        except (OSError, EOFError, ValueError, TypeError):
            code = None
        # A folder that was moved brings bytecode along that names the files of the old place.
        if isinstance(code, CodeType) and code.co_filename == self.path:
            return code
        code = self.source_to_code(source, self.path)
        if not sys.dont_write_bytecode:
            self.set_data(cached, header + marshal.dumps(code))
        return code


class _Finder:
    """Finds what Python would find, and gives the files of one package the loader above."""

    def __init__(self, package: str) -> None:
        self.prefix = f"{package}."

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(self.prefix):
            return None
        spec = PathFinder.find_spec(name, path, target)
        # Whoever loads the files in another way (a debugger, a tool that measures coverage) knows why.
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def trust_content_only(package: str) -> None:
    """From now on, import the modules of a package, its sub-rooms' too, through the loader above."""
    sys.meta_path.insert(0, _Finder(package))
