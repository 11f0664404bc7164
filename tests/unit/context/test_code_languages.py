"""The analysis of real code, language by language."""

from __future__ import annotations

from textwrap import dedent

import pytest

from cleveragents.context.analysis import analyse
from cleveragents.context.model.code import Field, FileAnalysis, Import


def read(path: str, code: str) -> FileAnalysis:
    return analyse(path, dedent(code).lstrip("\n").encode())


def outline(analysis: FileAnalysis) -> list[tuple[str, str, tuple[int, int], tuple[int, int]]]:
    """Return the kind, dotted name, span and signature of every definition."""
    return [
        (
            one.kind,
            analysis.qualified(number),
            (one.span.first, one.span.last),
            (one.signature.first, one.signature.last),
        )
        for number, one in enumerate(analysis.definitions)
    ]


def chunks(analysis: FileAnalysis) -> list[tuple[int, int, str | None]]:
    """Return the first and last line of every chunk, and its definition."""
    return [
        (
            chunk.span.first,
            chunk.span.last,
            None if chunk.definition is None else analysis.qualified(chunk.definition),
        )
        for chunk in analysis.chunks
    ]


def terms(analysis: FileAnalysis, field: Field) -> set[str]:
    return {term for chunk in analysis.chunks for term in chunk.terms.get(field, {})}


PYTHON = '''
"""Storage of users."""
from __future__ import annotations
import os.path as p, json
from ..core import (Base as B,  # the base
    Mixin)
from . import *

LIMIT: int = 10

# Keeps users.
@register("user")  # twice
class Store(B):
    """A store."""

    size = 0

    def __init__(
        self, name: str
    ) -> None:  # noqa
        # remember
        self.name = f"user {name.title()} stored"

        def inner():
            return LIMIT

    __init__.alters_data = True

    @property
    def total(self): return self.size


async def main():
    Store("x")
'''


def test_python_definitions():
    assert outline(read("a.py", PYTHON)) == [
        ("variable", "LIMIT", (8, 8), (8, 8)),
        ("class", "Store", (10, 29), (12, 12)),
        ("variable", "Store.size", (15, 15), (15, 15)),
        ("method", "Store.__init__", (17, 24), (17, 19)),
        ("function", "Store.__init__.inner", (23, 24), (23, 23)),
        ("method", "Store.total", (28, 29), (29, 29)),
        ("function", "main", (32, 33), (32, 32)),
    ]


def test_python_imports():
    assert read("a.py", PYTHON).imports == (
        Import("__future__", (("annotations", "annotations"),)),
        Import("os.path"),
        Import("json"),
        Import("..core", (("Base", "B"), ("Mixin", "Mixin"))),
        Import(".", (("*", "*"),)),
    )


def test_python_chunks_are_functions_class_heads_and_the_rest():
    """A line after a function is searched with it; nested functions belong to the outermost."""
    assert chunks(read("a.py", PYTHON)) == [
        (1, 9, None),
        (10, 16, "Store"),
        (17, 27, "Store.__init__"),
        (28, 31, "Store.total"),
        (32, 33, "main"),
    ]


def test_python_terms_stand_in_the_fields_they_belong_to():
    analysis = read("a.py", PYTHON)
    init = analysis.chunks[2].terms
    assert init[Field.NAME] == {"init": 1, "inner": 1}
    assert init[Field.STRING] == {"user": 1, "stored": 1}
    assert init[Field.DOC] == {"noqa": 1, "remember": 1}
    assert init[Field.REFERENCE] == {
        "name": 3, "str": 1, "title": 1, "limit": 1, "init": 1, "altersdata": 1
    }  # fmt: skip
    assert init[Field.BODY]["user"] == 1
    assert init[Field.BODY]["remember"] == 1
    assert init[Field.BODY]["altersdata"] == 1
    assert analysis.chunks[0].terms[Field.DOC] == {"storage": 1, "users": 1, "base": 1}


JAVASCRIPT = """
// Sums.
import def, { a as b, c } from './x';
import * as ns from "y";
export * from './z';
const fs = require('fs');
var LIMIT = 10;

/** Adds. */
export function add(x, y) {
  return `sum ${total(x)} done`;
}

export const mul = async (x) => {
  return x * LIMIT;
};

class Foo extends Bar {
  static count = 0;
  handler = () => { this.go('now'); };

  constructor(a) {
    super(a);
  }
}

Foo.prototype.extra = function (q) {
  return q;
};
module.exports = {
  run: function () { return 1; },
  stop() {},
};
const view = <b title="t">Hello world</b>;
"""


def test_javascript():
    analysis = read("a.jsx", JAVASCRIPT)
    assert analysis.language == "javascript"
    assert outline(analysis) == [
        ("variable", "fs", (5, 5), (5, 5)),
        ("variable", "LIMIT", (6, 6), (6, 6)),
        ("function", "add", (8, 11), (9, 9)),
        ("function", "mul", (13, 15), (13, 13)),
        ("class", "Foo", (17, 24), (17, 17)),
        ("variable", "Foo.count", (18, 18), (18, 18)),
        ("method", "Foo.handler", (19, 19), (19, 19)),
        ("method", "Foo.constructor", (21, 23), (21, 21)),
        ("function", "extra", (26, 28), (26, 26)),
        ("function", "run", (30, 30), (30, 30)),
        ("function", "stop", (31, 31), (31, 31)),
        ("variable", "view", (33, 33), (33, 33)),
    ]
    assert analysis.imports == (
        Import("./x", (("default", "def"), ("a", "b"), ("c", "c"))),
        Import("y", (("*", "ns"),)),
        Import("./z", (("*", "*"),)),
        Import("fs"),
    )
    assert chunks(analysis)[:4] == [(1, 7, None), (8, 12, "add"), (13, 16, "mul"), (17, 18, "Foo")]
    assert {"sum", "done", "hello", "world", "now"} <= terms(analysis, Field.STRING)
    assert "total" in terms(analysis, Field.REFERENCE)
    assert terms(analysis, Field.DOC) == {"sums", "adds"}


TYPESCRIPT = """
import type { A } from './a';
import x = require("legacy");

@Component({selector: 'x'})
export class Svc<T> implements Shape {
  @Input() name: string;
  private http: Http;
  run(
    a: string,
  ): void {
    console.log(`a ${a}`);
  }
}
export interface Shape {
  area(): number;
}
type Alias = string | number;
enum Color { Red }
namespace Inner {
  export function deep() {}
}
export abstract class Q {
  abstract size(): number;
}
declare function ext(
  a: number,
): string;
"""


@pytest.mark.parametrize(("path", "language"), [("a.ts", "typescript"), ("a.tsx", "tsx")])
def test_typescript(path: str, language: str):
    analysis = read(path, TYPESCRIPT)
    assert analysis.language == language
    assert outline(analysis) == [
        ("class", "Svc", (4, 13), (5, 5)),
        ("variable", "Svc.name", (6, 6), (6, 6)),
        ("variable", "Svc.http", (7, 7), (7, 7)),
        ("method", "Svc.run", (8, 12), (8, 10)),
        ("interface", "Shape", (14, 16), (14, 14)),
        ("type", "Alias", (17, 17), (17, 17)),
        ("enum", "Color", (18, 18), (18, 18)),
        ("namespace", "Inner", (19, 21), (19, 19)),
        ("function", "Inner.deep", (20, 20), (20, 20)),
        ("class", "Q", (22, 24), (22, 22)),
        ("declaration", "Q.size", (23, 23), (23, 23)),
        ("declaration", "ext", (25, 27), (25, 27)),
    ]
    assert analysis.imports == (Import("./a", (("A", "A"),)), Import("legacy"))
    assert chunks(analysis)[:3] == [(1, 3, None), (4, 7, "Svc"), (8, 13, "Svc.run")]


def test_go():
    analysis = read(
        "a.go",
        """
        package main

        import (
        \t"fmt"
        \tstr "text/strings"
        )

        // Limit is one.
        const Limit = 10

        var (
        \tfirst = 1
        )

        // Server serves.
        type Server struct {
        \tname string
        }

        type Runner interface {
        \tRun() error
        }

        type ID = string

        // Run runs.
        func (s *Server) Run(
        \ta int,
        ) error {
        \tfmt.Println(`raw text`, str.ToUpper("loud"))
        \treturn nil
        }
        """,
    )
    assert outline(analysis) == [
        ("variable", "Limit", (8, 9), (9, 9)),
        ("variable", "first", (12, 12), (12, 12)),
        ("struct", "Server", (15, 18), (16, 16)),
        ("interface", "Runner", (20, 22), (20, 20)),
        ("type", "ID", (24, 24), (24, 24)),
        ("method", "Run", (26, 32), (27, 29)),
    ]
    assert analysis.imports == (Import("fmt"), Import("text/strings"))
    assert chunks(analysis) == [
        (1, 14, None),
        (15, 19, "Server"),
        (20, 22, "Runner"),
        (23, 25, None),
        (26, 32, "Run"),
    ]
    assert {"raw", "text", "loud"} <= terms(analysis, Field.STRING)
    assert "toupper" in terms(analysis, Field.REFERENCE)
    assert "func" not in terms(analysis, Field.REFERENCE)


def test_rust():
    analysis = read(
        "a.rs",
        """
        //! Crate docs.
        use std::{fmt, collections::{HashMap, HashSet as Set}};
        use crate::foo::Bar as Baz;
        pub(crate) use super::*;
        use serde;
        pub mod util;

        /// A point.
        #[derive(Debug)]
        pub struct Point<T> {
            x: T,
        }
        struct Unit;
        const MAX: usize = 3;

        impl<T> Point<T> {
            /// New.
            pub fn new(x: T) -> Self
            where
                T: Copy,
            {
                println!("made {}", x);
            }
        }
        impl fmt::Display for Unit {
            fn fmt(&self) {}
        }
        trait Shape {
            fn area(&self) -> f64;
        }
        macro_rules! sq { ($x:expr) => { $x * $x } }
        mod tests {
            #[test]
            fn it() {}
        }
        """,
    )
    assert outline(analysis) == [
        ("struct", "Point", (8, 12), (10, 10)),
        ("struct", "Unit", (13, 13), (13, 13)),
        ("variable", "MAX", (14, 14), (14, 14)),
        ("impl", "Point", (16, 24), (16, 16)),
        ("method", "Point.new", (17, 23), (18, 20)),
        ("impl", "Unit", (25, 27), (25, 25)),
        ("method", "Unit.fmt", (26, 26), (26, 26)),
        ("trait", "Shape", (28, 30), (28, 28)),
        ("declaration", "Shape.area", (29, 29), (29, 29)),
        ("macro", "sq", (31, 31), (31, 31)),
        ("module", "tests", (32, 35), (32, 32)),
        ("function", "tests.it", (33, 34), (34, 34)),
    ]
    assert analysis.imports == (
        Import("std", (("fmt", "fmt"),)),
        Import("std::collections", (("HashMap", "HashMap"), ("HashSet", "Set"))),
        Import("crate::foo", (("Bar", "Baz"),)),
        Import("super", (("*", "*"),)),
        Import("serde"),
        Import("self::util"),
    )
    assert (17, 24, "Point.new") in chunks(analysis)
    assert "made" in terms(analysis, Field.STRING)


def test_java():
    analysis = read(
        "A.java",
        """
        package a.b;
        import java.util.List;
        import static a.b.C.build;
        import java.io.*;

        /** Doc. */
        @Deprecated
        public class Abc<T> extends Base {
            private static final int LIMIT = 10;

            public Abc(int x) { this.x = x; }

            /** Runs. */
            @Override
            public void run(String s,
                            int n) throws Oops {
                System.out.println("hello there" + s);
            }

            abstract int size();
            enum Color { RED }
            record Pair(int x, int y) {}
        }
        interface Goes { void go(); }
        """,
    )
    assert outline(analysis) == [
        ("class", "Abc", (6, 23), (7, 8)),
        ("variable", "Abc.LIMIT", (9, 9), (9, 9)),
        ("method", "Abc.Abc", (11, 11), (11, 11)),
        ("method", "Abc.run", (13, 18), (14, 16)),
        ("declaration", "Abc.size", (20, 20), (20, 20)),
        ("enum", "Abc.Color", (21, 21), (21, 21)),
        ("class", "Abc.Pair", (22, 22), (22, 22)),
        ("interface", "Goes", (24, 24), (24, 24)),
        ("declaration", "Goes.go", (24, 24), (24, 24)),
    ]
    assert analysis.imports == (
        Import("java.util.List"),
        Import("a.b.C", (("build", "build"),)),
        Import("java.io", (("*", "*"),)),
    )
    assert chunks(analysis)[:4] == [(1, 5, None), (6, 10, "Abc"), (11, 12, "Abc.Abc"), (13, 20, "Abc.run")]
    assert terms(analysis, Field.STRING) == {"hello", "there"}


def test_c():
    analysis = read(
        "a.c",
        """
        #include <sys/stdio.h>
        #include "util.h"
        #define MAX 10
        #define SQ(x) ((x) * (x))
        static int counter = 0;
        int declared(int a);
        /* Adds. */
        static int add(int a,
                       int b)
        {
            printf("sum %d", a + b);
        }
        char **name(void) { return "named"; }
        struct point { int x; };
        typedef struct { int a; } pair_t;
        enum color { RED };
        #ifdef FOO
        void guarded(void) {}
        #endif
        """,
    )
    assert outline(analysis) == [
        ("variable", "MAX", (3, 3), (3, 3)),
        ("variable", "SQ", (4, 4), (4, 4)),
        ("variable", "counter", (5, 5), (5, 5)),
        ("declaration", "declared", (6, 6), (6, 6)),
        ("function", "add", (7, 12), (8, 9)),
        ("function", "name", (13, 13), (13, 13)),
        ("struct", "point", (14, 14), (14, 14)),
        ("type", "pair_t", (15, 15), (15, 15)),
        ("enum", "color", (16, 16), (16, 16)),
        ("function", "guarded", (18, 18), (18, 18)),
    ]
    assert analysis.imports == (Import("sys/stdio.h"), Import("./util.h"))
    assert chunks(analysis)[:3] == [(1, 6, None), (7, 12, "add"), (13, 13, "name")]


@pytest.mark.parametrize("path", ["a.cpp", "a.h"])
def test_cpp(path: str):
    analysis = read(
        path,
        """
        #include "lib/x.hpp"
        namespace foo {
        /// Doc.
        template <typename T>
        class Bar : public Base {
         public:
          Bar() : x_(1) {}
          int get() const { return x_; }
          virtual void run(int a);
         private:
          int x_;
        };
        }
        void foo::Bar::run(int a) {
          std::cout << "hey" << R"(raw)";
        }
        int& ref() { return x; }
        using Ints = std::vector<int>;
        """,
    )
    assert analysis.language == "cpp"
    assert outline(analysis) == [
        ("namespace", "foo", (2, 13), (2, 2)),
        ("class", "foo.Bar", (3, 12), (5, 5)),
        ("method", "foo.Bar.Bar", (7, 7), (7, 7)),
        ("method", "foo.Bar.get", (8, 8), (8, 8)),
        ("declaration", "foo.Bar.run", (9, 9), (9, 9)),
        ("variable", "foo.Bar.x_", (11, 11), (11, 11)),
        ("function", "run", (14, 16), (14, 14)),
        ("function", "ref", (17, 17), (17, 17)),
        ("type", "Ints", (18, 18), (18, 18)),
    ]
    assert analysis.imports == (Import("lib/x.hpp"),)
    run = next(chunk for chunk in analysis.chunks if chunk.span.first == 14)
    assert run.terms[Field.NAME] == {"foo": 1, "bar": 1, "run": 1}
    assert run.terms[Field.STRING] == {"hey": 1, "raw": 1}


def test_ruby():
    analysis = read(
        "a.rb",
        """
        require 'json'
        require_relative "lib/x"
        # Doc.
        module Foo
          LIMIT = 10
          class Bar::Baz < Base
            attr_reader :name
            # Makes.
            def initialize(name,
                           b)
              @name = "hi #{shout(name)} there"
            end
            def self.build = new
            def empty; end
          end
        end
        puts <<~TXT
          some text
        TXT
        """,
    )
    assert outline(analysis) == [
        ("module", "Foo", (3, 16), (4, 4)),
        ("variable", "Foo.LIMIT", (5, 5), (5, 5)),
        ("class", "Foo.Baz", (6, 15), (6, 6)),
        ("method", "Foo.Baz.initialize", (8, 12), (9, 10)),
        ("method", "Foo.Baz.build", (13, 13), (13, 13)),
        ("method", "Foo.Baz.empty", (14, 14), (14, 14)),
    ]
    assert analysis.imports == (Import("json"), Import("./lib/x"))
    assert chunks(analysis)[:3] == [(1, 2, None), (3, 5, "Foo"), (6, 7, "Foo.Baz")]
    assert {"hi", "there", "some", "text"} <= terms(analysis, Field.STRING)
    assert "shout" in terms(analysis, Field.REFERENCE)


@pytest.mark.parametrize(
    ("path", "first_line", "language"),
    [
        ("run", "#!/usr/bin/env python3.11", "python"),
        ("run", "#!/usr/bin/node", "javascript"),
        ("run", "#!/bin/sh", "text"),
        ("run", "import os", "text"),
        (".py", "import os", "text"),
        ("dir.py/run", "import os", "text"),
        ("dir/RUN.PY", "import os", "python"),
        ("a.unknown", "#!/usr/bin/python", "text"),
    ],
)
def test_a_language_is_detected_by_suffix_or_interpreter(path: str, first_line: str, language: str):
    assert analyse(path, f"{first_line}\nx = 1\n".encode()).language == language


@pytest.mark.parametrize(
    ("path", "statement", "imports"),
    [
        ("a.js", 'import "side-effect";', (Import("side-effect"),)),
        ("a.js", "export { a as b } from './q';", (Import("./q", (("a", "b"),)),)),
        ("a.js", "import { /* one, */ a, } from 'q'; // 'r'", (Import("q", (("a", "a"),)),)),
        ("a.js", "const q = await import('./lazy');", (Import("./lazy"),)),
        ("a.js", "require(name); other('x');", ()),
        ("a.rs", "use {a::b, c};", (Import("", (("c", "c"),)), Import("a", (("b", "b"),)))),
        ("a.rs", "use a::{self, b::{c::{d, e}}};",
         (Import("a", (("self", "self"),)), Import("a::b::c", (("d", "d"), ("e", "e"))))),
        ("a.c", "#include MACRO\n", ()),
        ("a.go", 'package a\nimport _ "embed"\n', (Import("embed"),)),
        ("a.rb", "require name\nload 'tasks.rb'\n", (Import("tasks.rb"),)),
        ("a.py", "if x:\n    import a.b\n", (Import("a.b"),)),
        ("a.py", "from a import \\\n    b\n", (Import("a", (("b", "b"),)),)),
    ],
)  # fmt: skip
def test_imports_in_other_forms(path: str, statement: str, imports: tuple[Import, ...]):
    assert analyse(path, statement.encode()).imports == imports
