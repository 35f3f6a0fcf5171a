package membership

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gus/quic"
	"gus/register"
)

func authority(t testing.TB) *quic.Authority {
	t.Helper()
	a, err := quic.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestASignedConfigurationIsOpened(t *testing.T) {
	a := authority(t)
	want := New(a.Cluster(), 1, Voter{"c", 7}, Voter{"a", 1}, Voter{"b", 2})
	if want.ReadQuorum != 2 || want.WriteQuorum != 2 {
		t.Errorf("quorums of 3 voters: %d, %d", want.ReadQuorum, want.WriteQuorum)
	}
	b, err := Sign(want, a)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Open(b, a.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	again, err := Sign(got, a)
	if err != nil || !bytes.Equal(again, b) {
		t.Errorf("signed again, the document is another: %v", err)
	}
	if got.VoterOf("c") != 7 || got.VoterOf("d") != 0 {
		t.Errorf("c is voter %d, d %d", got.VoterOf("c"), got.VoterOf("d"))
	}
	r := got.Register(7, 4, 9)
	if err := r.Validate(); err != nil || r.Boot != 4 || r.Saved != 9 || !reflect.DeepEqual(r.Voters, []register.Voter{1, 2, 7}) {
		t.Errorf("the register is told %+v: %v", r, err)
	}
}

func TestForgedConfigurations(t *testing.T) {
	a, stranger := authority(t), authority(t)
	c := New(a.Cluster(), 1, Voter{"a", 1})
	b, err := Sign(c, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(b, stranger.Certificate()); err == nil {
		t.Error("a stranger's configuration was opened")
	}
	if _, err := Sign(c, stranger); err == nil {
		t.Error("a configuration of another cluster was signed")
	}
	for i := range b {
		forged := bytes.Clone(b)
		forged[i] ^= 1
		if got, err := Open(forged, a.Certificate()); err == nil {
			t.Errorf("with byte %d changed it is %+v", i, got)
		}
	}
	for n := range b {
		if _, err := Open(b[:n], a.Certificate()); err == nil {
			t.Errorf("the first %d bytes are a configuration", n)
		}
	}
	if _, err := Open(make([]byte, maxDocument+1), a.Certificate()); err == nil {
		t.Error("a document beyond the limit was opened")
	}
	// What the authority signed for another purpose is no configuration.
	doc, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	other, err := encoding.Marshal(signed{doc, a.Sign(doc)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(other, a.Certificate()); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("signed as something else: %v", err)
	}
}

// Even the authority's signature does not make nonsense valid.
func TestSignedNonsense(t *testing.T) {
	a := authority(t)
	good, err := New(a.Cluster(), 1, Voter{"a", 1}).encode()
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(quic.Cluster{1}, 1, Voter{"a", 1}).encode()
	if err != nil {
		t.Fatal(err)
	}
	none, err := New(a.Cluster(), 0, Voter{"a", 1}).encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string][]byte{
		"bytes after it":    append(bytes.Clone(good), 0),
		"no document":       nil,
		"another cluster":   other,
		"number 0":          none,
		"a field unknown":   append(append([]byte{good[0] + 1}, good[1:]...), 6, 0),
		"a number at width": bytes.Replace(good, []byte{2, 1, 3}, []byte{2, 0x18, 1, 3}, 1),
	} {
		b, err := encoding.Marshal(signed{doc, a.Sign(append([]byte(signedAs), doc...))})
		if err != nil {
			t.Fatal(err)
		}
		if c, err := Open(b, a.Certificate()); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestValidate(t *testing.T) {
	nine := make([]Voter, 9)
	for i := range nine {
		nine[i] = Voter{strings.Repeat("n", 62) + string(rune('a'+i)), register.Voter(55 + i)}
	}
	for _, c := range []struct {
		name   string
		change func(c *Configuration)
		want   string // "" where it is valid
	}{
		{"as it is", func(*Configuration) {}, ""},
		{"nine", func(c *Configuration) { *c = New(c.Cluster, 1, nine...) }, ""},
		{"one", func(c *Configuration) { *c = New(c.Cluster, 1, nine[0]) }, ""},
		{"larger quorums", func(c *Configuration) { c.ReadQuorum = 3 }, ""},
		{"none", func(c *Configuration) { c.Voters = nil }, "no voters"},
		{"ten", func(c *Configuration) { *c = New(c.Cluster, 1, append([]Voter{{"x", 1}}, nine...)...) }, "10 voters"},
		{"number 0", func(c *Configuration) { c.Number = 0 }, "number 0"},
		{"no quorum", func(c *Configuration) { c.WriteQuorum = 0 }, "no quorum"},
		{"no majority", func(c *Configuration) { c.ReadQuorum = 1 }, "majority"},
		{"a quorum of too many", func(c *Configuration) { c.WriteQuorum = 4 }, "quorum of 4"},
		{"a bad name", func(c *Configuration) { c.Voters[1].Name = "B" }, "site name"},
		{"a name twice", func(c *Configuration) { c.Voters[1].Name = "a" }, "twice"},
		{"a number twice", func(c *Configuration) { c.Voters[1].Number = 1 }, "ascending"},
		{"out of order", func(c *Configuration) { c.Voters[0].Number = 9 }, "ascending"},
		{"voter 0", func(c *Configuration) { c.Voters[0].Number = 0 }, "voter number 0"},
		{"voter 64", func(c *Configuration) { c.Voters[2].Number = 64 }, "voter number 64"},
	} {
		conf := New(quic.Cluster{1}, 1, Voter{"a", 1}, Voter{"b", 2}, Voter{"c", 3})
		c.change(&conf)
		err := conf.Validate()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	a := authority(t)
	b, err := Sign(New(a.Cluster(), 1<<63, nine...), a)
	if err != nil || len(b) > maxDocument/2 {
		t.Errorf("the largest is %d bytes: %v", len(b), err)
	}
}

func TestTheFile(t *testing.T) {
	a := authority(t)
	dir := t.TempDir()
	if _, err := Load(dir, a.Certificate()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("from an empty directory: %v", err)
	}
	for n := range uint64(3) {
		want := New(a.Cluster(), n+1, Voter{"a", 1})
		b, err := Sign(want, a)
		if err != nil {
			t.Fatal(err)
		}
		if err := Save(dir, b); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(dir, a.Certificate()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("loaded %+v, want %+v: %v", got, want, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("the directory holds %v: %v", names, err)
	}
	path := filepath.Join(dir, file)
	if err := os.Truncate(path, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, a.Certificate()); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "copy it from") {
		t.Errorf("from half a file: %v", err)
	}
	if err := Save(filepath.Join(dir, "nowhere"), nil); err == nil {
		t.Error("saved into a directory that does not exist")
	}
}
