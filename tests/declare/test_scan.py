"""A package is imported whole, searched, and gives a catalog, singletons and functions that configure."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import pytest

from amoxi_py.declare.scan import scan_package
from amoxi_py.errors import DeclarationError

IMPORTS = "from amoxi_py import agent, configure, singleton, tool\n"


def test_everything_that_is_declared_is_found_once(package: Callable[..., str]) -> None:
    name = package(
        init="from .tools import Tools\n",
        tools=IMPORTS
        + "@singleton\nclass Tools:\n    @tool\n    def one(self): ...\n"
        + "@tool\ndef two(): ...\n"
        + "class NotDeclared:\n    @tool\n    def three(self): ...\n",
        agents=IMPORTS
        + "from .tools import Tools, two\n@agent(tools=[two])\nclass Helper:\n    '''Help.'''\n"
        + "class Lazy:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\nlazy = Lazy()\n",
        pages=IMPORTS + "@configure\ndef pages(app): ...\n@configure\ndef more(app): ...\n",
        __main__="raise SystemExit('run')",
    )
    declarations = scan_package(name)
    assert set(declarations.catalog.tools) == {"one", "two"}
    assert set(declarations.catalog.agents) == {"helper"}
    assert [cls.__name__ for cls in declarations.singletons] == ["Tools"]
    pages = importlib.import_module(f"{name}.pages")
    assert [one.function for one in declarations.configure] == [pages.pages, pages.more]
    assert f"{name}.__main__" not in sys.modules


def test_a_missing_package_says_so(package: Callable[..., str]) -> None:
    package()
    with pytest.raises(DeclarationError, match=r"there is no package 'nowhere_to_be_found' here; .*app\.package"):
        scan_package("nowhere_to_be_found")


def test_a_module_that_cannot_be_imported_is_one_line_with_its_cause(package: Callable[..., str]) -> None:
    name = package(
        good=IMPORTS + "@tool\ndef f(): ...\n",
        bad="x = 1\ndef go():\n    raise RuntimeError('two\\nlines')\ngo()\n",
        worse="def broken(:\n",
        absent="import a_library_that_is_not_there\n",
    )
    with pytest.raises(DeclarationError) as caught:
        scan_package(name)
    problems = sorted(caught.value.problems)
    assert len(problems) == 3
    assert problems[0].startswith(f"{name}.absent: it cannot be imported: ModuleNotFoundError: No module named 'a_lib")
    assert problems[1].startswith(f"{name}.bad: it cannot be imported: RuntimeError: two lines (")
    assert problems[1].endswith("bad.py, line 4)")
    assert problems[2].startswith(f"{name}.worse: it cannot be imported: SyntaxError")
    assert problems[2].endswith("worse.py, line 1)")
    assert "Traceback" not in str(caught.value)


def test_a_scan_during_a_scan_stops_the_start_and_says_so(package: Callable[..., str]) -> None:
    name = package(server="from amoxi_py.declare.scan import scan_package\napp = scan_package('whatever')\n")
    with pytest.raises(DeclarationError) as caught:
        scan_package(name)
    [problem] = caught.value.problems
    assert problem.startswith(
        f"{name}.server: create_app() or install() was called while the modules of {name!r} were being imported"
    )
    other = package(tools=IMPORTS + "@tool\ndef two(): ...\n")
    assert set(scan_package(other).catalog.tools) == {"two"}


def test_a_class_of_an_agents_tools_is_found_where_it_is_named(package: Callable[..., str]) -> None:
    name = package(
        tools=IMPORTS + "class Tools:\n    @tool\n    def one(self): ...\n    @tool\n    def two(self): ...\n",
        agents=IMPORTS + "from .tools import Tools\n@agent(tools=[Tools.two])\nclass Helper:\n    '''Help.'''\n",
    )
    declarations = scan_package(name)
    assert set(declarations.catalog.tools) == {"two"}
    assert [cls.__name__ for cls in declarations.singletons] == ["Tools"]
