package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gus/agent/client"
)

// fakeStore is an agent with keys and no cluster. Writes of some keys fail.
type fakeStore struct {
	mu     sync.Mutex
	keys   map[string][]byte
	fails  map[string]error
	writes int

	then  map[string][]byte        // as it was in its one epoch
	limit int                      // of a page; 0: 3
	wrote func(writes int)         // nil, or called after each write, under mu
	list  func(after string) error // nil, or called before each page, under mu
}

// fakeEpoch is the number of the one epoch of a fakeStore.
const fakeEpoch = "7"

func (s *fakeStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	key, query := strings.TrimPrefix(r.URL.Path, "/v1/kv/"), r.URL.Query()
	err, keys := s.fails[key], s.keys
	if query.Has("epoch") {
		keys = s.then
	}
	switch {
	case query.Has("epoch") && query.Get("epoch") != fakeEpoch:
		err = client.ErrNoEpoch
	case r.URL.Path == "/v1/kv":
		if s.list != nil {
			err = s.list(query.Get("after"))
		}
		if err == nil {
			s.page(w, keys, query.Get("prefix"), query.Get("after"))
			return
		}
	case r.Method == http.MethodGet:
		if v, ok := keys[key]; ok {
			w.Write(v)
			return
		}
		err = client.ErrNotFound
	case err == nil:
		s.writes++
		s.keys[key] = body
		if r.Method == http.MethodDelete {
			delete(s.keys, key)
		}
		if s.wrote != nil {
			s.wrote(s.writes)
		}
	}
	if err != nil {
		status, code := client.Code(err)
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(client.Error{Code: code, Message: err.Error()})
	}
}

func (s *fakeStore) page(w io.Writer, of map[string][]byte, prefix, after string) {
	limit := cmp.Or(s.limit, 3)
	p := client.Page{Entries: []client.Entry{}}
	var keys []string
	for k := range of {
		if strings.HasPrefix(k, prefix) && k > after {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys[:min(limit, len(keys))] {
		p.Entries = append(p.Entries, client.Entry{Key: k, Size: len(of[k]), Version: client.Version(of[k])})
	}
	if len(keys) > limit {
		p.Next = keys[limit-1]
	}
	json.NewEncoder(w).Encode(p)
}

// with runs a command against the store.
func (s *fakeStore) with(t *testing.T, in string, args ...string) (out, errs string, err error) {
	t.Helper()
	return s.within(t, t.Context(), in, args...)
}

// within is with, until ctx ends.
func (s *fakeStore) within(t *testing.T, ctx context.Context, in string, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e lockedBuffer
	a := &app{in: strings.NewReader(in), out: &o, err: &e}
	err = a.run(ctx, slices.Concat(args[:1], []string{"--socket", startFake(t, s)}, args[1:]))
	return o.String(), e.String(), err
}

// Any bytes that are exported are those that come back, under any key.
func TestExportAndImportKeepBytes(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	s := &fakeStore{keys: map[string][]byte{
		"a": nil, "dir/": []byte("a slash at the end\n"), "b\\u0041": []byte(`"\ud83d\ude00\u2028`), "<&>": []byte("<&>\u2028\u2029\x00\x7f"), "é 🦬": []byte("🦬\ufffd"),
		"bytes": all, "half": {0xed, 0xa0, 0x80}, "large": bytes.Repeat([]byte{0}, client.MaxValue), "_gus/sync/x": []byte("the system's"),
	}}
	out, _, err := s.with(t, "", "export")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "_gus/") || strings.Count(out, "\n") != 8 {
		t.Errorf("%d lines:\n%.2000s", strings.Count(out, "\n"), out)
	}
	into := &fakeStore{keys: map[string][]byte{}}
	said, _, err := into.with(t, out, "import", "-")
	if err != nil || said != "8 keys written, 0 the same already\n" {
		t.Fatalf("%v: %s", err, said)
	}
	for k, v := range into.keys {
		if !bytes.Equal(v, s.keys[k]) {
			t.Errorf("%s came back as %.100q", k, v)
		}
	}
	if again, _, err := into.with(t, "", "export"); err != nil || again != out {
		t.Errorf("%v: the second export differs", err)
	}
	said, _, err = into.with(t, out, "import", "-")
	if err != nil || said != "0 keys written, 8 the same already\n" || into.writes != 8 {
		t.Errorf("the second time: %v: %s, %d writes in all", err, said, into.writes)
	}
}

// A mistake in any line is told with its number, and nothing is written.
func TestImportChecksAllFirst(t *testing.T) {
	good := `{"key":"k","value":"v"}` + "\n"
	for bad, want := range map[string]string{
		`{"key":"a","value":"v"`:                                 "unexpected EOF",
		`{"key":"a","value":"v"} x`:                              "more behind the record",
		`{"key":"a","valeu":"v"}`:                                `unknown field "valeu"`,
		`{"key":"a"}`:                                            "one of value and base64",
		`{"key":"a","value":"v","base64":""}`:                    "one of value and base64",
		`{"key":"a","value":null}`:                               "one of value and base64",
		`{"key":"a","base64":"?"}`:                               "illegal base64",
		`{"key":"a","value":7}`:                                  "number",
		`["a","v"]`:                                              "array",
		"{\"key\":\"a\",\"value\":\"\xff\"}":                     "not UTF-8",
		`{"key":"a","value":"\ud83d"}`:                           "half a character",
		`{"key":"a","value":"\ude00"}`:                           "half a character",
		`{"key":"a","value":"\\\ud83dx"}`:                        "half a character",
		`{"key":"","value":"v"}`:                                 "refused",
		`{"key":"a\tb","value":"v"}`:                             "refused",
		`{"key":"_gus/x","value":"v"}`:                           "the system's",
		`{"key":"k","value":"w"}`:                                "line 1 already",
		`{"key":"` + strings.Repeat("a", 1025) + `"}`:            "one of value and base64",
		`{"key":"` + strings.Repeat("a", 1025) + `","value":""}`: "1024",
		`{"key":"a","value":"` + strings.Repeat("a", client.MaxValue+1) + `"}`: "the limit is 1048576 bytes",
		strings.Repeat(" ", maxLine+1):                                         "1 MiB",
	} {
		s := &fakeStore{keys: map[string][]byte{}}
		_, _, err := s.with(t, good+"\n"+bad+"\n"+`{"key":"z","value":""}`, "import", "-")
		if err == nil || !strings.Contains(err.Error(), "line 3: ") || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "nothing is changed") || s.writes > 0 {
			t.Errorf("%.100s: %v, %d writes, want %q", bad, err, s.writes, want)
		}
	}
}

// Escapes that are whole characters, and backslashes before what looks like one, are no mistake.
func TestLoneSurrogates(t *testing.T) {
	for text, want := range map[string]bool{
		`"\ud83d\ude00"`: false, `"\\ud83d"`: false, `"\\\\ud83d x"`: false, `"\u0041\n\""`: false, `"\ud83d\ude00\ud83d"`: true,
		`"\ud83d\n"`: true, `"\\\ude00"`: true, `"\ud83d\ud83d\ude00"`: true, `\`: false, `\u`: false, `\ud8`: false,
	} {
		if got := loneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// An import that fails in the middle says of which lines what is known, and goes on
// when it is run again.
func TestImportThatFails(t *testing.T) {
	const n = 3000
	var file bytes.Buffer
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&file, `{"key":"k%d","value":"%d"}`+"\n", i, i)
	}
	name := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(name, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &fakeStore{keys: map[string][]byte{"k7": []byte("7")}, fails: map[string]error{
		"k500": client.ErrNoQuorum, "k501": client.ErrUnknownOutcome,
	}}
	out, _, err := s.with(t, "", "import", name, "--json")
	if err == nil || exitCode(err) != exitUnknown {
		t.Fatalf("%v exits with %d", err, exitCode(err))
	}
	if said := err.Error(); !strings.HasPrefix(said, "import: line 500, k500: no quorum; ") || !strings.Contains(said, ", 1 the same already, 1 unknown (line 501), 1 failed (line 500), the last ") {
		t.Error(said)
	}
	var r imported
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Written+r.Same+len(r.Unknown)+len(r.Failed)+r.NotTried != n || r.Written != s.writes || r.Same != 1 || r.NotTried == 0 {
		t.Errorf("%+v with %d writes", r, s.writes)
	}
	for i := 1; i <= n; i++ {
		_, ok := s.keys[fmt.Sprintf("k%d", i)]
		if want := i <= n-r.NotTried && i != 500 && i != 501; ok != want {
			t.Errorf("line %d is written: %v", i, ok)
		}
	}
	s.fails = nil
	if out, _, err := s.with(t, "", "import", name); err != nil || out != fmt.Sprintf("%s keys written, %s the same already\n", thousands(n-r.Written-1), thousands(r.Written+1)) {
		t.Errorf("again: %v: %s", err, out)
	}
}

func TestImportDryRun(t *testing.T) {
	s := &fakeStore{keys: map[string][]byte{"a": []byte("1"), "b": []byte("1")}}
	file := `{"key":"a","value":"1"}` + "\n" + `{"key":"b","value":"2"}` + "\n" + `{"key":"c","value":"3"}`
	out, _, err := s.with(t, file, "import", "-", "--dry-run")
	if err != nil || out != "2 keys would be written, 1 the same already\n" || s.writes > 0 {
		t.Errorf("%v: %s, %d writes", err, out, s.writes)
	}
}

// A key that is gone when it is read, after it was listed, is no failure; an agent
// that fails in the middle is one.
func TestExportThatFails(t *testing.T) {
	s := &fakeStore{keys: map[string][]byte{}}
	for i := range 20 {
		s.keys[fmt.Sprintf("k%02d", i)] = nil
	}
	broken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "k03"):
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"code":"not_found","message":"no such key"}`)
		case strings.HasSuffix(r.URL.Path, "k11"):
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"code":"no_quorum","message":"no quorum"}`)
		default:
			s.ServeHTTP(w, r)
		}
	})
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: io.Discard}
	err := a.run(t.Context(), []string{"export", "--socket", startFake(t, broken)})
	if exitCode(err) != exitNoQuorum || !strings.HasPrefix(fmt.Sprint(err), "the export is not whole, it ends after 10 keys: ") {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 10 || !strings.Contains(out.String(), "k10") {
		t.Errorf("%d lines", n)
	}
}

// An export that is interrupted has failed, as one that broke off for another reason.
func TestExportThatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	a := &app{out: io.Discard, err: io.Discard}
	err := a.run(ctx, []string{"export", "--socket", startFake(t, silent)})
	if exitCode(err) != exitFailed || fmt.Sprint(err) != "the export is not whole, it ends after 0 keys: interrupted" {
		t.Error(err)
	}
}
