import json

import pytest

NOTHING = {
    "nolint": 0,
    "reinterpret_cast": 0,
    "type_ignore": 0,
    "long_sources": 0,
    "long_headers": 0,
    "long_functions": 0,
}


def record(tree, **counts):
    tree.write("tools/ratchet.json", json.dumps({**NOTHING, **counts}))


def read_record(tree):
    return json.loads((tree.root / "tools/ratchet.json").read_text())


def cpp_function(lines, head="int f() {"):
    """A function of exactly so many lines."""
    return "\n".join([head, *["  x();"] * (lines - 2), "}"]) + "\n"


def python_function(lines, doc_lines=0):
    doc = ['    """Doc.', *["    more"] * (doc_lines - 2), '    """'] if doc_lines else []
    return "\n".join(["def f():", *doc, *["    x()"] * (lines - 1)]) + "\n"


# path, text at the limit, text beyond it, kind, place that is printed
LIMITS = {
    "source": ("src/a.cc", "\n" * 400, "\n" * 401, "long_sources", "src/a.cc:1: 401 lines"),
    "header": ("src/a.h", "\n" * 150, "\n" * 151, "long_headers", "src/a.h:1: 151 lines"),
    "module": ("python/a.py", "\n" * 400, "\n" * 401, "long_sources", "python/a.py:1: 401 lines"),
    "function": (
        "src/a.cc",
        "namespace n {\n" + cpp_function(50) + "}\n",
        "namespace n {\n" + cpp_function(51) + "}\n",
        "long_functions",
        "src/a.cc:2: 51 lines",
    ),
    "python function": (
        "python/a.py",
        python_function(50, doc_lines=20),
        python_function(51, doc_lines=20),
        "long_functions",
        "python/a.py:1: 51 lines",
    ),
    "cast": (
        "src/a.cc",
        "// reinterpret_cast\n",
        "auto p = reinterpret_cast<char*>(q);\n",
        "reinterpret_cast",
        "src/a.cc:1",
    ),
    "nolint": ("src/a.cc", "// NO LINT\n", "int i;  // NOLINT(x)\n", "nolint", "src/a.cc:1"),
    "ignore": (
        "python/a.py",
        "x = 'type: ignore'\n",
        "x = 1  # type: ignore[assignment]\n",
        "type_ignore",
        "python/a.py:1",
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_limit_is_allowed_and_more_is_not(tree, name):
    path, allowed, too_much, kind, place = LIMITS[name]
    record(tree)
    tree.write(path, allowed)
    assert tree.run("check_ratchet.py") == (0, ["check_ratchet: no count rose"])
    tree.write(path, too_much)
    code, lines = tree.run("check_ratchet.py")
    assert code == 1
    assert lines[0].endswith(": 1, but at most 0 are recorded:")
    assert lines[1] == f"  {place}"
    record(tree, **{kind: 1})
    assert tree.run("check_ratchet.py")[0] == 0


@pytest.mark.parametrize(
    "head",
    [
        "template <class T> requires std::integral<T> auto f(T x) -> int {",
        "Foo::Foo() : a_{1}, b_(2) {",
        "Foo& operator=(Foo&& other) noexcept {",
        "TEST(Suite, Name) {",
        "class Foo { public: void f() const {",
        "const char* f() { const char* brace = \"}\"; char c = '}'; // }",
        'auto f() { auto raw = R"(}")"; /* } */ auto n = 1\'000\'000;',
        "void f() { auto g = [] { return 1; };",
    ],
)
def test_functions_of_every_shape_are_measured(tree, head):
    record(tree)
    tail = "};\n" if head.startswith("class") else ""
    tree.write("src/a.cc", cpp_function(51, head) + tail)
    assert tree.run("check_ratchet.py")[1][1] == "  src/a.cc:1: 51 lines"
    tree.write("src/a.cc", cpp_function(50, head) + tail)
    assert tree.run("check_ratchet.py")[0] == 0


def test_what_is_no_function_may_be_long(tree):
    record(tree)
    body = "\n".join(["  {1, 2},"] * 60)
    tree.write("src/a.cc", f"const Table kTable = {{\n{body}\n}};\nenum E {{\n{'  A,' * 60}\n}};\n")
    tree.write("src/b.cc", "struct S {\n" + "  int f() { return 1; }\n" * 60 + "};\n")
    assert tree.run("check_ratchet.py")[0] == 0


def test_update_lowers_and_never_raises(tree):
    record(tree, nolint=3, reinterpret_cast=0)
    tree.write("src/a.cc", "int i;  // NOLINT\n")
    code, lines = tree.run("check_ratchet.py")
    assert code == 0
    assert lines[0] == "NOLINT comments: fell from 3 to 1"
    assert "tools/check_ratchet.py --update" in lines[1]
    assert tree.run("check_ratchet.py", "--update")[0] == 0
    assert read_record(tree) == {**NOTHING, "nolint": 1}

    tree.write("src/a.cc", "auto a = reinterpret_cast<int*>(b);\n")
    assert tree.run("check_ratchet.py", "--update") == (
        1,
        ["reinterpret_cast in C++: not raised from 0 to 1"],
    )
    assert read_record(tree) == NOTHING


def test_first_update_writes_what_is_there(tree):
    tree.write("tools/tool.py", "x = 1  # type: ignore\n")
    assert tree.run("check_ratchet.py", "--update") == (0, [])
    assert read_record(tree) == {**NOTHING, "type_ignore": 1}


def test_list_prints_every_place(tree):
    tree.write("src/a.cc", "auto a = reinterpret_cast<int*>(b);\n")
    code, lines = tree.run("check_ratchet.py", "--list")
    assert code == 0
    assert lines.index("  src/a.cc:1") == lines.index("reinterpret_cast in C++: 1") + 1
