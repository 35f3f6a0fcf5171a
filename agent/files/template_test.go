package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A template is rendered again when what it has read changes, within the prefix and outside.
func TestTemplates(t *testing.T) {
	t.Setenv("GUS_TEST_REGION", "eu")
	s := newSite(t,
		"app/conf.tmpl", "port {{ key \"app/port\" }} at {{ site }} in {{ env \"GUS_TEST_REGION\" }}\n{{ range keys \"peers/\" }}peer {{ . }} {{ key . }}\n{{ end }}",
		"app/port", "80", "app/other.tmpl", "plain", "peers/b", "2", "peers/a", "1", "_gus/x", "")
	dir := t.TempDir()
	r := start(t, s, Pull{Prefix: "app/", Dir: dir, Template: true, Delete: true})
	holds(t, dir, "conf", "port 80 at site-a in eu\npeer peers/a 1\npeer peers/b 2\n", "port", "80", "other", "plain")
	first := r.await("good", good)
	s.set("peers/a", "11")
	holds(t, dir, "conf", "port 80 at site-a in eu\npeer peers/a 11\npeer peers/b 2\n", "port", "80", "other", "plain")
	r.await("another version", func(st State) bool { return good(st) && st.Version != first.Version })
	s.delete("peers/b")
	s.set("app/port", "81")
	holds(t, dir, "conf", "port 81 at site-a in eu\npeer peers/a 11\n", "port", "81", "other", "plain")
	s.stop()
	s.set("peers/c", "3")
	s.start()
	holds(t, dir, "conf", "port 81 at site-a in eu\npeer peers/a 11\npeer peers/c 3\n", "port", "81", "other", "plain")
	s.set("app/conf.tmpl", "fixed")
	s.delete("app/other.tmpl")
	holds(t, dir, "conf", "fixed", "port", "81")
}

// A template that needs what is not there keeps the old file, and says which key and line.
func TestTemplatesThatFail(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"absent key", "a\nb {{ key \"app/none\" }}", `template: app/x.tmpl:2:5: executing "app/x.tmpl" at <key "app/none">: error calling key: there is no key "app/none"`},
		{"syntax", "a\n\n{{ end }}", "template: app/x.tmpl:3: unexpected {{end}}"},
		{"unknown function", "{{ keyy \"a\" }}", `template: app/x.tmpl:1: function "keyy" not defined`},
		{"variable", "{{ env \"GUS_TEST_UNSET\" }}", "app/x.tmpl:1:3: executing"},
		{"system", "{{ key \"_gus/x\" }}", "keys below _gus/ are the system's"},
		{"nothing", "{{ range keys \"none/\" }}x{{ end }}\n", "app/x.tmpl: it renders to nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, "app/x.tmpl", "old", "app/y", "1", "_gus/x", "")
			dir := t.TempDir()
			r := start(t, s, Pull{Prefix: "app/", Dir: dir, Template: true})
			holds(t, dir, "x", "old", "y", "1")
			s.set("app/x.tmpl", c.text)
			s.set("app/y", "2")
			holds(t, dir, "x", "old", "y", "2")
			st := r.await("an error", func(st State) bool { return st.Error != "" })
			if !strings.Contains(st.Error, c.says) || st.Pending != 1 {
				t.Errorf("%+v", st)
			}
			s.set("app/none", "here") // what was missing comes
			if c.name == "absent key" {
				holds(t, dir, "x", "a\nb here", "y", "2", "none", "here")
			}
			s.set("app/x.tmpl", "fixed")
			holds(t, dir, "x", "fixed", "y", "2", "none", "here")
			r.await("good", good)
		})
	}
}

// Without Template, templates are files like others; with it, one beside the file that it makes is an error for the pair.
func TestATemplateBesideItsFile(t *testing.T) {
	s := newSite(t, "a/x", "1", "a/x.tmpl", "{{ site }}", "a/.tmpl", "x", "a/ok", "1")
	plain := t.TempDir()
	must(t, once(t, s, Pull{Prefix: "a/", Dir: plain}))
	holds(t, plain, "x", "1", "x.tmpl", "{{ site }}", ".tmpl", "x", "ok", "1")
	dir := t.TempDir()
	r := start(t, s, Pull{Prefix: "a/", Dir: dir, Template: true})
	st := r.await("three problems", func(st State) bool { return st.Pending == 3 })
	if !strings.Contains(st.Error, `key "a/.tmpl": leaves no name for a file (and 2 more)`) {
		t.Error(st.Error)
	}
	holds(t, dir, "ok", "1")
	s.delete("a/x")
	s.delete("a/.tmpl")
	holds(t, dir, "ok", "1", "x", "site-a")
	r.await("good", good)
	if _, err := os.Stat(filepath.Join(dir, "x.tmpl")); err == nil {
		t.Error("the template is there as well")
	}
}
