package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// picture is which packages of this module each one may import outside its
// tests: lines lead down only (CONTRIBUTING.md).
var picture = map[string][]string{
	".":              {"cli"},
	"cli":            {"agent", "agent/client", "agent/files"},
	"cli/torture":    {"agent/client", "register", "register/sim"},
	"agent":          {"agent/client", "agent/files", "membership", "quic", "register", "snapshot"},
	"agent/client":   {},
	"agent/files":    {"agent/client"},
	"membership":     {"quic", "register"},
	"quic":           {"register", "register/plain"},
	"snapshot":       {"register", "register/plain"},
	"register":       {},
	"register/plain": {"register"},
	"register/sim":   {"register"},
}

// pure is all that the core may import: no time, no context, no sync, no
// network, no files, no logs, no random numbers.
var pure = []string{"errors", "fmt", "hash/crc32", "iter", "math/bits", "slices", "strconv", "strings", "unicode", "unicode/utf8"}

// adapters is the one package that may import each library.
var adapters = map[string]string{
	"github.com/quic-go/quic-go":      "quic",
	"github.com/hashicorp/memberlist": "membership",
	"github.com/urfave/cli/v2":        "cli",
	"modernc.org/sqlite":              "snapshot",
	"modernc.org/sqlite/lib":          "snapshot",
}

type sourceFile struct {
	name, dir string
	test      bool
	syntax    *ast.File
}

// sources parses every Go file of the module.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		files = append(files, sourceFile{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), syntax})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func imports(f sourceFile) []string {
	var out []string
	for _, spec := range f.syntax.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		out = append(out, p)
	}
	return out
}

func TestImportsFollowThePicture(t *testing.T) {
	for _, f := range sources(t) {
		allowed, ok := picture[f.dir]
		if !ok {
			t.Errorf("%s: the picture has no folder %s", f.name, f.dir)
		}
		if f.test {
			continue
		}
		for _, p := range imports(f) {
			if in, ours := strings.CutPrefix(p, "gus/"); ours && !slices.Contains(allowed, in) {
				t.Errorf("%s imports %s: lines lead down only", f.name, p)
			}
			if f.dir == "register" && !slices.Contains(pure, p) {
				t.Errorf("%s imports %s: the core is pure", f.name, p)
			}
			if home, ok := adapters[p]; ok && home != f.dir {
				t.Errorf("%s imports %s, which belongs to %s", f.name, p, home)
			}
			if f.dir == "agent/client" && strings.Contains(p, ".") {
				t.Errorf("%s imports %s: the client is for others to use and needs the standard library alone", f.name, p)
			}
		}
	}
}

func TestEachPackageSaysWhatItIsFor(t *testing.T) {
	said := map[string]int{}
	for _, f := range sources(t) {
		if !f.test {
			said[f.dir] += 0
			if f.syntax.Doc != nil {
				said[f.dir]++
			}
		}
	}
	for dir, n := range said {
		if n != 1 {
			t.Errorf("%s has %d package comments: one, in doc.go", dir, n)
		}
	}
}

func TestNothingRunsBeforeMain(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function: whoever needs it calls it", f.name)
			}
		}
	}
}

func TestFunctionsFitOnAScreen(t *testing.T) {
	const most = 70 // lines
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, f.name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > most {
					t.Errorf("%s: %s has %d lines: at most %d", f.name, fn.Name.Name, n, most)
				}
			}
		}
	}
}

func TestExportedNamesAreExplained(t *testing.T) {
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && !explainedByInterface(d) && exportedReceiver(d) {
					t.Errorf("%s: %s has no comment", f.name, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
						t.Errorf("%s: type %s has no comment", f.name, ts.Name.Name)
					}
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	e := d.Recv.List[0].Type
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}

// explainedByInterface says whether a method is one that its interface explains.
func explainedByInterface(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Kind", "Register", "Error", "Unwrap", "Is", "Write", "Read", "Close",
		"ReadFrom", "WriteTo", "LocalAddr", "SetDeadline", "SetReadDeadline", "SetWriteDeadline", "SetReadBuffer", "SetWriteBuffer", "SyscallConn", "ReadMsgUDP", "WriteMsgUDP"}, d.Name.Name)
}

// TestSQLiteHasItsLibc holds the two modules together that belong together:
// with another libc than the one it was made with, SQLite crashes in odd ways.
func TestSQLiteHasItsLibc(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"modernc.org/sqlite v1.62.0", "modernc.org/libc v1.80.1"} {
		if !strings.Contains(string(mod), want) {
			t.Errorf("go.mod has no %s: they change together only", want)
		}
	}
}

// TestReadmeCommandsExist keeps the README honest about commands and flags of make.
func TestReadmeCommandsExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`make ([a-z0-9]+)").FindAllStringSubmatch(string(text), -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s speaks of make %s, which the Makefile does not have", name, m[1])
			}
		}
	}
}
